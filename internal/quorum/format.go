package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// The format is described in docs/format/quorum-log.md. All integers are
// little-endian.
//
// A segment is a header and frames; a frame is what was written and synced at
// once, so only the last frame of the last segment can be torn:
//
//	segment:  magic(8) version(4) preambleCRC(4) sequence(8) baseIndex(8)
//	          baseTerm(8) firstFrame(8) node(8) salt(4) headerCRC(4) frames...
//	frame:    length(4) CRC(4) sequence(8) payload(length) 0xff to a multiple of 8
//	payload:  term(8) vote(8) commit(8) entryCount(4) entries...
//	entry:    term(8) index(8) type(1) length(4) data(length)
//
//	snapshot: magic(8) version(4) preambleCRC(4) index(8) term(8) node(8)
//	          configurationLength(4) dataLength(8) headerCRC(4)
//	          configuration members(in version 2) data CRC(4)
const (
	segmentMagic  = "strQlog\n"
	snapshotMagic = "strQsnp\n"

	// FormatVersion is the version of all files that this build writes, with one
	// exception.
	FormatVersion uint32 = 1
	// SnapshotVersion is that of a snapshot that tells of members.
	SnapshotVersion uint32 = 2

	preambleBytes       = 16
	segmentHeaderBytes  = 64
	snapshotHeaderBytes = 56
	frameHeaderBytes    = 16
	payloadHeaderBytes  = 28
	entryHeaderBytes    = 21
	frameAlign          = 8

	// maxIndex is far beyond what any log reaches, and keeps sums of an index
	// read from disk from wrapping.
	maxIndex = math.MaxUint64 / 4
)

// crcTable is a constant in all but the language's eyes.
var crcTable = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crcTable) }

// appendPreamble appends what every version of a file begins with.
func appendPreamble(dst []byte, magic string) []byte {
	return appendPreambleOf(dst, magic, FormatVersion)
}

func appendPreambleOf(dst []byte, magic string, version uint32) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

// checkPreamble verifies it. Its own checksum tells another version from
// damage, whatever that version put behind it.
func checkPreamble(path string, data []byte, magic string) error {
	if len(data) < preambleBytes {
		return &CorruptionError{path, 0, fmt.Sprintf("only %d bytes long", len(data))}
	}
	if string(data[:len(magic)]) != magic {
		return &CorruptionError{path, 0, "does not begin with " + fmt.Sprintf("%q", magic)}
	}
	if checksum(data[:12]) != binary.LittleEndian.Uint32(data[12:]) {
		return &CorruptionError{path, 8, "checksum of the version does not match"}
	}
	known := FormatVersion
	if magic == snapshotMagic {
		known = SnapshotVersion
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v < FormatVersion || v > known {
		return &VersionError{Path: path, Version: v, Known: known}
	}
	return nil
}

// segmentHeader begins a segment.
type segmentHeader struct {
	sequence uint64 // Segments are numbered without a gap.
	// base is the last entry before this segment. What earlier segments held
	// after it is void.
	base       entryID
	firstFrame uint64 // Sequence of the first frame.
	node       uint64
	// salt starts the frames' checksums, so that no client's bytes within an
	// entry can pass for a frame.
	salt uint32
}

func (h segmentHeader) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = appendPreamble(dst, segmentMagic)
	for _, v := range [...]uint64{h.sequence, h.base.index, h.base.term, h.firstFrame, h.node} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = binary.LittleEndian.AppendUint32(dst, h.salt)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

// errUnfinished says that a segment was never created to its end.
var errUnfinished = errors.New("unfinished segment")

// parseSegmentHeader returns errUnfinished for a file whose creation a crash
// interrupted: its first write is within one block, so that it is there up to
// some length, or not.
func parseSegmentHeader(path string, data []byte) (segmentHeader, error) {
	if len(data) < preambleBytes || isZero(data) {
		return segmentHeader{}, errUnfinished
	}
	if err := checkPreamble(path, data, segmentMagic); err != nil {
		return segmentHeader{}, err
	}
	if len(data) < segmentHeaderBytes {
		return segmentHeader{}, errUnfinished
	}
	if checksum(data[:60]) != binary.LittleEndian.Uint32(data[60:]) {
		return segmentHeader{}, &CorruptionError{path, 16, "checksum of the header does not match"}
	}
	u64 := func(position int) uint64 { return binary.LittleEndian.Uint64(data[position:]) }
	h := segmentHeader{
		sequence: u64(16), base: entryID{u64(24), u64(32)}, firstFrame: u64(40), node: u64(48),
		salt: binary.LittleEndian.Uint32(data[56:]),
	}
	if h.base.index > maxIndex || h.firstFrame > maxIndex || h.sequence > maxIndex {
		return segmentHeader{}, &CorruptionError{path, 16, "a number of the header is out of range"}
	}
	return h, nil
}

// frameBytes returns the size of a frame with these entries on disk.
func frameBytes(entries []*raftpb.Entry) int64 {
	n := payloadHeaderBytes
	for _, e := range entries {
		n += entryHeaderBytes + len(e.GetData())
	}
	return frameHeaderBytes + alignUp(int64(n))
}

func alignUp(n int64) int64 { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// appendFrame appends one frame.
func appendFrame(dst []byte, salt uint32, sequence uint64, hs hardState, entries []*raftpb.Entry) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, make([]byte, 8)...)
	dst = le.AppendUint64(dst, sequence)
	for _, v := range [...]uint64{hs.term, hs.vote, hs.commit} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint32(dst, uint32(len(entries)))
	for _, e := range entries {
		dst = le.AppendUint64(dst, e.GetTerm())
		dst = le.AppendUint64(dst, e.GetIndex())
		dst = append(dst, byte(e.GetType()))
		dst = le.AppendUint32(dst, uint32(len(e.GetData())))
		dst = append(dst, e.GetData()...)
	}
	frame := dst[start:]
	le.PutUint32(frame, uint32(len(frame)-frameHeaderBytes))
	le.PutUint32(frame[4:], frameChecksum(salt, frame))
	for len(dst[start:])%frameAlign != 0 {
		dst = append(dst, paddingByte)
	}
	return dst
}

// frameChecksum covers everything but itself and the padding.
func frameChecksum(salt uint32, frame []byte) uint32 {
	crc := crc32.Update(salt, crcTable, frame[:4])
	return crc32.Update(crc, crcTable, frame[8:])
}

// frame is one frame read back.
type frame struct {
	hard    hardState
	entries []*raftpb.Entry // Their data aliases what was read.
}

// cutFrame returns the payload of the frame that data begins with, its
// sequence and its size with padding; ok is false when there is no whole one.
func cutFrame(data []byte, salt uint32) (payload []byte, sequence uint64, size int64, ok bool) {
	if len(data) < frameHeaderBytes {
		return nil, 0, 0, false
	}
	length := int64(binary.LittleEndian.Uint32(data))
	size = frameHeaderBytes + alignUp(length)
	if length < payloadHeaderBytes || frameHeaderBytes+length > int64(len(data)) {
		return nil, 0, 0, false
	}
	whole := data[:frameHeaderBytes+length]
	if frameChecksum(salt, whole) != binary.LittleEndian.Uint32(whole[4:]) {
		return nil, 0, 0, false
	}
	return whole[frameHeaderBytes:], binary.LittleEndian.Uint64(whole[8:]), size, true
}

// parsePayload decodes a frame whose checksum was right; an error means that
// it was written wrong.
func parsePayload(payload []byte) (frame, error) {
	le := binary.LittleEndian
	f := frame{hard: hardState{le.Uint64(payload), le.Uint64(payload[8:]), le.Uint64(payload[16:])}}
	count := le.Uint32(payload[24:])
	rest := payload[payloadHeaderBytes:]
	if uint64(count)*entryHeaderBytes > uint64(len(rest)) {
		return frame{}, fmt.Errorf("%d entries do not fit in %d bytes", count, len(rest))
	}
	f.entries = make([]*raftpb.Entry, 0, count)
	for range count {
		if len(rest) < entryHeaderBytes {
			return frame{}, errors.New("an entry's header is cut short")
		}
		term, index, kind := le.Uint64(rest), le.Uint64(rest[8:]), raftpb.EntryType(rest[16])
		length := le.Uint32(rest[17:])
		rest = rest[entryHeaderBytes:]
		if uint64(length) > uint64(len(rest)) {
			return frame{}, errors.New("an entry's data is cut short")
		}
		if index == 0 || index > maxIndex {
			return frame{}, fmt.Errorf("an entry has index %d", index)
		}
		f.entries = append(f.entries, &raftpb.Entry{
			Term: new(term), Index: new(index), Type: new(kind), Data: rest[:length:length],
		})
		rest = rest[length:]
	}
	if len(rest) > 0 {
		return frame{}, fmt.Errorf("%d bytes behind the last entry", len(rest))
	}
	return f, nil
}

// segmentContent is a segment read back.
type segmentContent struct {
	header segmentHeader
	frames []frame
	// end is where the next frame goes; lastFrame where the last one begins.
	end, lastFrame int64
	// torn says that bytes other than zero follow end: a write that a crash cut.
	torn bool
}

// parseSegment decodes a segment; errUnfinished says that not even its first
// frame is there, which is written along with the header. A tail that is no whole frame is torn if
// nothing valid follows it. If a later frame does, the damaged one had been
// synced before that was written, and it is corruption.
func parseSegment(path string, data []byte) (segmentContent, error) {
	h, err := parseSegmentHeader(path, data)
	if err != nil {
		return segmentContent{}, err
	}
	s := segmentContent{header: h, end: segmentHeaderBytes}
	next := h.firstFrame
	for {
		payload, sequence, size, ok := cutFrame(data[min(s.end, int64(len(data))):], h.salt)
		if !ok || sequence != next {
			break
		}
		f, err := parsePayload(payload)
		if err != nil {
			return s, &CorruptionError{path, s.end, err.Error()}
		}
		s.frames = append(s.frames, f)
		s.lastFrame = s.end
		s.end += size
		next++
	}
	tail := data[min(s.end, int64(len(data))):]
	s.torn = !isZero(tail)
	if later, ok := findFrame(tail, h.salt, next); ok {
		return s, &CorruptionError{
			path, s.end,
			fmt.Sprintf("no valid frame, but one follows at byte %d", s.end+int64(later)),
		}
	}
	if len(s.frames) == 0 {
		return segmentContent{}, errUnfinished
	}
	if isRotten(tail, s.end, next) {
		return s, &CorruptionError{
			path, s.end, fmt.Sprintf("frame %d was damaged after it had been written", next),
		}
	}
	return s, nil
}

// findFrame looks for any frame of this log at or after a sequence.
func findFrame(data []byte, salt uint32, sequence uint64) (position int, ok bool) {
	for p := 0; p+frameHeaderBytes <= len(data); p += frameAlign {
		// The sequence is compared first: it rules out almost every position
		// without a checksum.
		s := binary.LittleEndian.Uint64(data[p+8:])
		if s < sequence || s-sequence > uint64(len(data)/frameHeaderBytes) {
			continue
		}
		if _, _, _, ok := cutFrame(data[p:], salt); ok {
			return p, true
		}
	}
	return 0, false
}

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
