package commitlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Watermarks keep the high watermarks of the replicas in a data directory over a restart,
// in a file of their own: what they say is never needed to recover a log, and a replica
// that nobody else has needs none. docs/format/high-watermarks.md describes the file. Its
// methods may be called from any goroutine; Save and Lower write, and neither is called
// for an append.
//
// Invariant: what the file says of a log was its high watermark once, and is below every
// truncation since.
type Watermarks struct {
	fs vfs.FS

	mu       sync.Mutex // Held around writes.
	recalled map[kafka.TopicIDPartition]kafka.Offset
	kept     map[kafka.TopicIDPartition]kafka.Offset // What the file says.
}

const (
	watermarksName    = "high-watermarks"
	watermarksMagic   = 0x534c4857 // "SLHW"
	watermarksVersion = 1
	watermarksHeader  = 12
	watermarkSize     = 28
)

// Watermarks reads what an earlier broker has kept. A file that is damaged or of another
// version is left out, which an event tells: high watermarks then begin at the log starts,
// and rise when leaders and followers have spoken.
func (d *Dir) Watermarks() *Watermarks {
	w := &Watermarks{fs: d.fs}
	data, err := readFile(d.fs, watermarksName)
	if err == nil {
		w.recalled, err = decodeWatermarks(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.options.Events.Problem("read "+watermarksName+": high watermarks are found anew", err)
	}
	if w.recalled == nil {
		w.recalled = map[kafka.TopicIDPartition]kafka.Offset{}
	}
	w.kept = maps.Clone(w.recalled)
	return w
}

// Recall returns the high watermark that was kept of a log, 0 for none.
func (w *Watermarks) Recall(id kafka.TopicIDPartition) kafka.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recalled[id]
}

// Lower sees to it that the file says no more than offset of a log.
func (w *Watermarks) Lower(id kafka.TopicIDPartition, offset kafka.Offset) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recalled[id] > offset {
		w.recalled[id] = offset
	}
	if w.kept[id] <= offset {
		return nil
	}
	lowered := maps.Clone(w.kept)
	lowered[id] = offset
	return w.write(lowered)
}

// Save writes what collect returns, if it is another than the file has. Lower waits for
// it, so that what is lowered meanwhile is lowered in the file too.
func (w *Watermarks) Save(collect func() map[kafka.TopicIDPartition]kafka.Offset) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := collect()
	if maps.Equal(now, w.kept) {
		return nil
	}
	return w.write(now)
}

func (w *Watermarks) write(marks map[kafka.TopicIDPartition]kafka.Offset) error {
	if err := replaceFile(w.fs, watermarksName, encodeWatermarks(marks), true); err != nil {
		return fmt.Errorf("keep high watermarks: %w", err)
	}
	w.kept = marks
	return nil
}

func encodeWatermarks(marks map[kafka.TopicIDPartition]kafka.Offset) []byte {
	be := binary.BigEndian
	buf := make([]byte, 0, watermarksHeader+len(marks)*watermarkSize+crc32.Size)
	buf = be.AppendUint32(buf, watermarksMagic)
	buf = be.AppendUint32(buf, watermarksVersion)
	buf = be.AppendUint32(buf, uint32(len(marks)))
	ids := slices.SortedFunc(maps.Keys(marks), func(a, b kafka.TopicIDPartition) int {
		return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Partition, b.Partition))
	})
	for _, id := range ids {
		buf = append(buf, id.ID[:]...)
		buf = be.AppendUint32(buf, uint32(id.Partition))
		buf = be.AppendUint64(buf, uint64(marks[id]))
	}
	return be.AppendUint32(buf, crc32.Checksum(buf, castagnoli))
}

func decodeWatermarks(data []byte) (map[kafka.TopicIDPartition]kafka.Offset, error) {
	be := binary.BigEndian
	if len(data) < watermarksHeader+crc32.Size || be.Uint32(data) != watermarksMagic {
		return nil, errors.New("these are no high watermarks")
	}
	body, sum := data[:len(data)-crc32.Size], be.Uint32(data[len(data)-crc32.Size:])
	entries := body[watermarksHeader:]
	switch {
	case crc32.Checksum(body, castagnoli) != sum:
		return nil, errors.New("CRC does not match")
	case be.Uint32(data[4:]) != watermarksVersion:
		return nil, fmt.Errorf("version %d is not known", be.Uint32(data[4:]))
	case uint64(len(entries)) != uint64(be.Uint32(data[8:]))*watermarkSize:
		return nil, errors.New("the number of entries does not fit")
	}
	marks := make(map[kafka.TopicIDPartition]kafka.Offset, len(entries)/watermarkSize)
	for e := entries; len(e) > 0; e = e[watermarkSize:] {
		var id kafka.TopicIDPartition
		copy(id.ID[:], e)
		id.Partition = int32(be.Uint32(e[16:]))
		marks[id] = max(0, kafka.Offset(be.Uint64(e[20:])))
	}
	return marks, nil
}
