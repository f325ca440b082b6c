package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

const (
	fuzzFileBytes = 16 * 4096
	fuzzID        = 0x0102030405060708
)

var fuzzTable = crc32.MakeTable(crc32.Castagnoli)

// fileOf returns a journal file with a right header and the blocks given.
func fileOf(blocks []byte) []byte {
	b := make([]byte, fuzzFileBytes)
	copy(b, "STRLJRNL")
	binary.BigEndian.PutUint16(b[8:], 2)
	binary.BigEndian.PutUint32(b[12:], 4096)
	binary.BigEndian.PutUint64(b[16:], fuzzID)
	binary.BigEndian.PutUint64(b[24:], fuzzFileBytes)
	binary.BigEndian.PutUint32(b[32:], crc32.Checksum(b[:32], fuzzTable))
	copy(b[4096:], blocks)
	return b
}

// frameOf returns a frame with a right checksum, padded, around any entries.
func frameOf(sequence, neededFrom uint64, count uint32, entries []byte) []byte {
	n := 40 + len(entries)
	b := make([]byte, (n+4095)&^4095)
	binary.BigEndian.PutUint32(b, 0x534a4652)
	binary.BigEndian.PutUint32(b[8:], uint32(n))
	binary.BigEndian.PutUint32(b[12:], count)
	binary.BigEndian.PutUint64(b[16:], fuzzID)
	binary.BigEndian.PutUint64(b[24:], sequence)
	binary.BigEndian.PutUint64(b[32:], neededFrom)
	copy(b[40:], entries)
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:n], fuzzTable))
	return b
}

// entryOf returns an entry of log 1.
func entryOf(kind byte, base, end uint64, data string) []byte {
	b := make([]byte, 44+len(data))
	id := logID(1)
	b[0] = kind
	copy(b[4:], id.ID[:])
	binary.BigEndian.PutUint32(b[20:], uint32(id.Partition))
	binary.BigEndian.PutUint64(b[24:], base)
	binary.BigEndian.PutUint64(b[32:], end)
	binary.BigEndian.PutUint32(b[40:], uint32(len(data)))
	copy(b[44:], data)
	return b
}

// openBytes writes a file as the only one of a journal and reads it.
func openBytes(t *testing.T, content []byte) {
	t.Helper()
	fsys := memfs.New()
	must(t, fsys.MkdirAll("journal"))
	f, err := fsys.Open("journal/00000000.journal", vfs.ReadWrite|vfs.Create)
	must(t, err)
	_, err = f.WriteAt(content, 0)
	must(t, err, f.Close())
	j, err := journal.Open(fsys, "journal", small())
	var corrupt *journal.CorruptionError
	var version *journal.VersionError
	if errors.As(err, &corrupt) || errors.As(err, &version) {
		return
	}
	must(t, err)
	must(t, j.Replay(func(e journal.Entry) error {
		if e.Kind != journal.Append && e.Kind != journal.Truncate {
			t.Errorf("replayed an entry of kind %d", e.Kind)
		}
		return nil
	}))
	must(t, j.Reset(), j.Close())
	again, err := journal.Open(fsys, "journal", small())
	must(t, err)
	must(t, again.Replay(func(journal.Entry) error {
		t.Error("an entry was replayed after Reset")
		return nil
	}))
	must(t, again.Close())
}

// FuzzFile opens arbitrary bytes as the beginning of a journal file, filled up
// with zeros or not.
func FuzzFile(f *testing.F) {
	for _, seed := range [][]byte{
		fileOf(frameOf(1, 1, 1, entryOf(1, 0, 1, "record"))),
		fileOf(nil),
		[]byte("STRLJRNL"),
	} {
		f.Add(bytes.TrimRight(seed, "\x00"), true)
	}
	f.Fuzz(func(t *testing.T, content []byte, fill bool) {
		if len(content) > fuzzFileBytes {
			return
		}
		if fill {
			content = append(content, make([]byte, fuzzFileBytes-len(content))...)
		}
		openBytes(t, content)
	})
}

// FuzzEntries reads arbitrary entries, in a frame whose checksum is right and
// which another follows.
func FuzzEntries(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint32(1), entryOf(1, 0, 1, "record"))
	f.Add(uint64(7), uint64(7), uint32(1), entryOf(2, 5, 5, ""))
	f.Add(uint64(7), uint64(3), uint32(2), append(entryOf(1, 0, 9, "x"), entryOf(3, 0, 0, "")...))
	f.Add(uint64(7), uint64(7), uint32(2), append(entryOf(5, 4, 4, ""), entryOf(2, 3, 3, "")...))
	f.Add(uint64(1)<<63, uint64(1), uint32(1<<31), entryOf(4, 0, 0, ""))
	f.Fuzz(func(t *testing.T, sequence, neededFrom uint64, count uint32, entries []byte) {
		if len(entries) > 4*4096 {
			return
		}
		blocks := frameOf(sequence, neededFrom, count, entries)
		blocks = append(blocks, frameOf(sequence+1, neededFrom, 1, entryOf(2, 3, 3, ""))...)
		openBytes(t, fileOf(blocks))
	})
}
