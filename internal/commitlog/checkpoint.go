package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// checkpointEntry is what is known to be on disk of one log: everything below
// recoveryPoint, in its segment files, synced. docs/format/checkpoint.md
// describes the file.
//
//	logStart         recoveryPoint        log end
//	|--- must be there ---|--- may be torn ---|
//
// What is damaged below recoveryPoint is corruption; what is damaged above is a
// torn tail.
type checkpointEntry struct {
	recoveryPoint kafka.Offset
	logStart      kafka.Offset
	cleanedTo     kafka.Offset // Compaction has been over everything below.
	segmentBase   kafka.Offset // Of the segment that recoveryPoint is in, or NoOffset.
	position      uint32       // Of recoveryPoint in that segment.
	lastSize      uint32       // Of the batch that ends at position; 0 if there is none.
	lastCRC       uint32
	indexedTo     uint32            // Indexes of that segment are synced below this position.
	leaderEpoch   kafka.LeaderEpoch // The latest epoch below recoveryPoint,
	epochStart    kafka.Offset      // and where it begins; NoOffset if unknown.
	largest       timestampOffset   // Of the batches of that segment below position.
	flags         uint32
	// knownEnd, if above recoveryPoint, is the offset below which everything was
	// durable once: of a log that was truncated, which is read from an earlier
	// place on, or is frozen, because a part of that is damaged or missing.
	knownEnd kafka.Offset
}

// entryNoProducers says that no producer had state at recoveryPoint, so that
// no snapshot is needed.
const entryNoProducers = 1 << 0

// entryGaps says that batches may leave gaps: the log was compacted, or is a
// copy of one that was.
const entryGaps = 1 << 1

// entryOpenTxns says that transactions were open at recoveryPoint, so that the
// producers' state is loaded when the log is opened: readers must not see further.
const entryOpenTxns = 1 << 2

func newCheckpointEntry() checkpointEntry {
	return checkpointEntry{
		segmentBase: kafka.NoOffset, leaderEpoch: kafka.NoLeaderEpoch, epochStart: kafka.NoOffset,
		largest: timestampOffset{timestamp: noTimestamp}, flags: entryNoProducers,
	}
}

// checkpoint is the content of a checkpoint file.
type checkpoint struct {
	sequence uint64
	clean    bool // The broker stopped in order: nothing is newer than this.
	entries  map[kafka.TopicIDPartition]checkpointEntry
}

// The layout of a checkpoint file; see docs/format/checkpoint.md.
const (
	checkpointMagic      = 0x534c434b // "SLCK"
	checkpointVersion    = 2
	checkpointHeaderSize = 32
	checkpointEntrySize  = 108
	checkpointClean      = 1 << 0

	// Version 1 had no header CRC and no knownEnd.
	checkpointVersion1   = 1
	checkpointEntrySize1 = 100
)

// checkpointNames are the two files that are written in turn.
func checkpointName(sequence uint64) string {
	if sequence%2 == 0 {
		return "checkpoint-0"
	}
	return "checkpoint-1"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin starts encoding c into buf; the entries follow by appendEntry.
func beginCheckpoint(buf []byte, sequence uint64, clean bool) []byte {
	buf = append(buf[:0], make([]byte, checkpointHeaderSize)...)
	binary.BigEndian.PutUint32(buf, checkpointMagic)
	binary.BigEndian.PutUint32(buf[4:], checkpointVersion)
	binary.BigEndian.PutUint64(buf[8:], sequence)
	if clean {
		binary.BigEndian.PutUint32(buf[16:], checkpointClean)
	}
	return buf
}

func appendCheckpointEntry(buf []byte, id kafka.TopicIDPartition, c checkpointEntry) []byte {
	be := binary.BigEndian
	buf = append(buf, id.ID[:]...)
	buf = be.AppendUint32(buf, uint32(id.Partition))
	buf = be.AppendUint64(buf, uint64(c.recoveryPoint))
	buf = be.AppendUint64(buf, uint64(c.logStart))
	buf = be.AppendUint64(buf, uint64(c.cleanedTo))
	buf = be.AppendUint64(buf, uint64(c.segmentBase))
	buf = be.AppendUint32(buf, c.position)
	buf = be.AppendUint32(buf, c.lastSize)
	buf = be.AppendUint32(buf, c.lastCRC)
	buf = be.AppendUint32(buf, c.indexedTo)
	buf = be.AppendUint32(buf, uint32(c.leaderEpoch))
	buf = be.AppendUint64(buf, uint64(c.epochStart))
	buf = be.AppendUint64(buf, uint64(c.largest.timestamp))
	buf = be.AppendUint64(buf, uint64(c.largest.offset))
	buf = be.AppendUint32(buf, c.flags)
	return be.AppendUint64(buf, uint64(c.knownEnd))
}

// endCheckpoint sets the count and the CRCs.
func endCheckpoint(buf []byte) []byte {
	be := binary.BigEndian
	be.PutUint32(buf[20:], uint32((len(buf)-checkpointHeaderSize)/checkpointEntrySize))
	be.PutUint32(buf[24:], crc32.Checksum(buf[:24], castagnoli))
	return be.AppendUint32(buf, crc32.Checksum(buf, castagnoli))
}

// decodeCheckpoint is the inverse; bytes after the CRC are of an older, longer
// checkpoint and are ignored.
func decodeCheckpoint(data []byte) (*checkpoint, error) {
	be := binary.BigEndian
	if len(data) < checkpointHeaderSize+4 || be.Uint32(data) != checkpointMagic {
		return nil, errors.New("no checkpoint")
	}
	entrySize := uint64(checkpointEntrySize)
	switch v := be.Uint32(data[4:]); {
	case v == checkpointVersion1:
		entrySize = checkpointEntrySize1
	case be.Uint32(data[24:]) != crc32.Checksum(data[:24], castagnoli):
		return nil, errors.New("CRC of the header does not match")
	case v > checkpointVersion:
		return nil, &NewerFormatError{Version: int(v), Known: checkpointVersion}
	case v < checkpointVersion1:
		return nil, errors.New("no version")
	}
	count := uint64(be.Uint32(data[20:]))
	size := checkpointHeaderSize + count*entrySize
	if size+4 > uint64(len(data)) {
		return nil, fmt.Errorf("%d entries do not fit into %d bytes", count, len(data))
	}
	if crc32.Checksum(data[:size], castagnoli) != be.Uint32(data[size:]) {
		return nil, errors.New("CRC does not match")
	}
	c := &checkpoint{
		sequence: be.Uint64(data[8:]),
		clean:    be.Uint32(data[16:])&checkpointClean != 0,
		entries:  make(map[kafka.TopicIDPartition]checkpointEntry, count),
	}
	for e := data[checkpointHeaderSize:size]; len(e) > 0; e = e[entrySize:] {
		id, entry := decodeCheckpointEntry(e)
		if entrySize == checkpointEntrySize {
			entry.knownEnd = kafka.Offset(be.Uint64(e[checkpointEntrySize1:]))
		}
		c.entries[id] = entry
	}
	return c, nil
}

func decodeCheckpointEntry(e []byte) (kafka.TopicIDPartition, checkpointEntry) {
	be := binary.BigEndian
	var id kafka.TopicIDPartition
	copy(id.ID[:], e)
	id.Partition = int32(be.Uint32(e[16:]))
	return id, checkpointEntry{
		recoveryPoint: kafka.Offset(be.Uint64(e[20:])),
		logStart:      kafka.Offset(be.Uint64(e[28:])),
		cleanedTo:     kafka.Offset(be.Uint64(e[36:])),
		segmentBase:   kafka.Offset(be.Uint64(e[44:])),
		position:      be.Uint32(e[52:]),
		lastSize:      be.Uint32(e[56:]),
		lastCRC:       be.Uint32(e[60:]),
		indexedTo:     be.Uint32(e[64:]),
		leaderEpoch:   kafka.LeaderEpoch(be.Uint32(e[68:])),
		epochStart:    kafka.Offset(be.Uint64(e[72:])),
		largest: timestampOffset{
			timestamp: int64(be.Uint64(e[80:])), offset: kafka.Offset(be.Uint64(e[88:])),
		},
		flags: be.Uint32(e[96:]),
	}
}

// loadCheckpoint reads the newer of the two files. With neither it returns an
// empty checkpoint, and lost says why if there was one that can't be read. It is
// an error if either is of a newer version.
func loadCheckpoint(fsys vfs.FS) (c *checkpoint, lost, err error) {
	c = &checkpoint{entries: map[kafka.TopicIDPartition]checkpointEntry{}}
	found := false
	for i := range uint64(2) {
		name := checkpointName(i)
		data, err := readFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
			continue // Reserved, and never written.
		}
		if err != nil {
			return nil, nil, err
		}
		other, err := decodeCheckpoint(data)
		var newer *NewerFormatError
		if errors.As(err, &newer) {
			newer.Path = name
			return nil, nil, newer
		}
		if err != nil {
			// Torn while it was written, normally: the other counts.
			lost = errors.Join(lost, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if !found || other.sequence > c.sequence {
			c, found = other, true
		}
	}
	if found {
		lost = nil
	}
	return c, lost, nil
}
