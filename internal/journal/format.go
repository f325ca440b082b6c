package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/strandline/strandline/internal/kafka"
)

// The format of a journal file, described in docs/format/journal.md. All
// numbers are big-endian.
//
//	file:   | header block | frame | frame | ... | stale bytes or zeros |
//	frame:  | magic | crc | length | count | journal id | sequence | needed from | entries | zeros to 4 KiB |
//	entry:  | kind | 0 0 0 | topic id | partition | base | end | length | data |
const (
	blockBytes = 4096 // What a frame is padded to; equals vfs.DirectAlign.

	fileMagic      = "STRLJRNL"
	fileVersion    = 2 // Version 1 had no filesSynced, and no offset in synced.
	oldestVersion  = 1
	fileHeaderSize = 36

	frameMagic      = 0x534a4652 // "SJFR"
	frameHeaderSize = 40
	entryHeaderSize = 44
)

// The kinds of entry that only the journal itself reads, beside Append and
// Truncate.
const (
	// synced: all earlier entries of the log are in its own files, durably, and
	// so is everything below EndOffset.
	synced Kind = 3
	// forgotten: the log was deleted; earlier entries are of no use.
	forgotten Kind = 4
	// filesSynced: everything below EndOffset is in the log's own files,
	// durably. It supersedes nothing.
	filesSynced Kind = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CorruptionError tells of bytes that were durable once and are not what was
// written.
type CorruptionError struct {
	Path     string
	Position int64
	Reason   string
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("journal %s is corrupt at byte %d: %s", e.Path, e.Position, e.Reason)
}

// VersionError tells of a file of a newer format. It was not touched.
type VersionError struct {
	Path    string
	Version uint16
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("journal %s has format version %d, this program knows up to %d: "+
		"use the program that wrote it", e.Path, e.Version, fileVersion)
}

// fileHeader is what the first block of a file says.
type fileHeader struct {
	version   uint16
	journalID uint64
	sizeBytes int64
}

func (h fileHeader) put(dst []byte) {
	copy(dst, fileMagic)
	binary.BigEndian.PutUint16(dst[8:], fileVersion)
	binary.BigEndian.PutUint16(dst[10:], 0)
	binary.BigEndian.PutUint32(dst[12:], blockBytes)
	binary.BigEndian.PutUint64(dst[16:], h.journalID)
	binary.BigEndian.PutUint64(dst[24:], uint64(h.sizeBytes))
	binary.BigEndian.PutUint32(dst[32:], crc32.Checksum(dst[:32], castagnoli))
}

// parseFileHeader reads the header of a file at path.
func parseFileHeader(path string, b []byte) (fileHeader, error) {
	switch {
	case len(b) < fileHeaderSize:
		return fileHeader{}, &CorruptionError{path, 0, "shorter than its header"}
	case string(b[:8]) != fileMagic:
		return fileHeader{}, &CorruptionError{path, 0, "no header"}
	}
	// The checksum is at its place in every version: it tells another version
	// from a damaged one.
	if binary.BigEndian.Uint32(b[32:]) != crc32.Checksum(b[:32], castagnoli) {
		return fileHeader{}, &CorruptionError{path, 32, "checksum of the header does not match"}
	}
	version := binary.BigEndian.Uint16(b[8:])
	switch {
	case version > fileVersion:
		return fileHeader{}, &VersionError{path, version}
	case version < oldestVersion:
		return fileHeader{}, &CorruptionError{path, 8, "no version"}
	}
	if n := binary.BigEndian.Uint32(b[12:]); n != blockBytes {
		return fileHeader{}, &CorruptionError{path, 12, fmt.Sprintf("block size %d", n)}
	}
	return fileHeader{
		version:   version,
		journalID: binary.BigEndian.Uint64(b[16:]),
		sizeBytes: int64(binary.BigEndian.Uint64(b[24:])),
	}, nil
}

// frameHeader is what the head of a frame says.
type frameHeader struct {
	length     int // Of header and entries, without the padding.
	count      int
	journalID  uint64
	sequence   uint64
	neededFrom uint64
}

// put completes a frame whose entries are in frame[frameHeaderSize:].
func (h frameHeader) put(frame []byte) {
	binary.BigEndian.PutUint32(frame, frameMagic)
	binary.BigEndian.PutUint32(frame[8:], uint32(len(frame)))
	binary.BigEndian.PutUint32(frame[12:], uint32(h.count))
	binary.BigEndian.PutUint64(frame[16:], h.journalID)
	binary.BigEndian.PutUint64(frame[24:], h.sequence)
	binary.BigEndian.PutUint64(frame[32:], h.neededFrom)
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], castagnoli))
}

// parseFrameHeader reads a frame's header and reports whether b begins with
// one. Its checksum is not checked, which needs the whole frame.
func parseFrameHeader(b []byte) (frameHeader, bool) {
	if len(b) < frameHeaderSize || binary.BigEndian.Uint32(b) != frameMagic {
		return frameHeader{}, false
	}
	h := frameHeader{
		length:     int(binary.BigEndian.Uint32(b[8:])),
		count:      int(binary.BigEndian.Uint32(b[12:])),
		journalID:  binary.BigEndian.Uint64(b[16:]),
		sequence:   binary.BigEndian.Uint64(b[24:]),
		neededFrom: binary.BigEndian.Uint64(b[32:]),
	}
	ok := h.length >= frameHeaderSize && h.length <= maxFrameBytes &&
		h.count <= (h.length-frameHeaderSize)/entryHeaderSize &&
		h.sequence > 0 && h.neededFrom <= h.sequence
	return h, ok
}

// checkFrame reports whether frame, of exactly the header's length, is whole.
func checkFrame(frame []byte) bool {
	return binary.BigEndian.Uint32(frame[4:]) == crc32.Checksum(frame[8:], castagnoli)
}

// putEntryHeader writes all of an entry but its data.
func putEntryHeader(dst []byte, e Entry) {
	_ = dst[entryHeaderSize-1]
	dst[0], dst[1], dst[2], dst[3] = byte(e.Kind), 0, 0, 0
	copy(dst[4:20], e.ID.ID[:])
	binary.BigEndian.PutUint32(dst[20:], uint32(e.ID.Partition))
	binary.BigEndian.PutUint64(dst[24:], uint64(e.BaseOffset))
	binary.BigEndian.PutUint64(dst[32:], uint64(e.EndOffset))
	binary.BigEndian.PutUint32(dst[40:], uint32(len(e.Data)))
}

// nextEntry reads the entry at the beginning of b and returns what follows it.
// The entry's data aliases b.
func nextEntry(b []byte) (e Entry, rest []byte, err error) {
	if len(b) < entryHeaderSize {
		return Entry{}, nil, fmt.Errorf("entry: %d bytes left of %d", len(b), entryHeaderSize)
	}
	e.Kind = Kind(b[0])
	copy(e.ID.ID[:], b[4:20])
	e.ID.Partition = int32(binary.BigEndian.Uint32(b[20:]))
	e.BaseOffset = kafka.Offset(binary.BigEndian.Uint64(b[24:]))
	e.EndOffset = kafka.Offset(binary.BigEndian.Uint64(b[32:]))
	length := binary.BigEndian.Uint32(b[40:])
	b = b[entryHeaderSize:]
	if uint64(length) > uint64(len(b)) {
		return Entry{}, nil, fmt.Errorf("entry: %d bytes of data, %d left", length, len(b))
	}
	if e.Kind < Append || e.Kind > filesSynced {
		return Entry{}, nil, fmt.Errorf("entry: unknown kind %d", e.Kind)
	}
	e.Data = b[:length:length]
	return e, b[length:], nil
}

// padded rounds up to whole blocks.
func padded(n int) int { return (n + blockBytes - 1) &^ (blockBytes - 1) }
