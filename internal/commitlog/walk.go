package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// The fields of a batch's header that finding one's way needs, by position;
// package record owns the rest.
const (
	headerBytes          = 61
	lengthPosition       = 8
	lengthOverhead       = 12 // Base offset and length are not counted by length.
	epochPosition        = 12
	magicPosition        = 16
	lastDeltaPosition    = 23
	crcPosition          = 17
	attributesPosition   = 21
	maxTimestampPosition = 35
	producerPosition     = 43
	countPosition        = 57
	magic                = 2
)

// batchHeader is what a walk over a segment sees of each batch.
type batchHeader struct {
	position     int64
	sizeBytes    int64
	baseOffset   kafka.Offset
	lastOffset   kafka.Offset
	leaderEpoch  kafka.LeaderEpoch
	maxTimestamp int64
	crc          uint32
	attributes   int16
	producer     producerFields
}

func (h batchHeader) end() boundary {
	return boundary{position: h.position + h.sizeBytes, nextOffset: h.lastOffset + 1}
}

var errBadHeader = errors.New("not a record batch")

// parseHeader reads the header at the start of b, which holds at least
// headerBytes.
func parseHeader(b []byte, position int64) (batchHeader, error) {
	length := int32(binary.BigEndian.Uint32(b[lengthPosition:]))
	delta := int32(binary.BigEndian.Uint32(b[lastDeltaPosition:]))
	base := int64(binary.BigEndian.Uint64(b))
	if b[magicPosition] != magic || length < headerBytes-lengthOverhead || delta < 0 ||
		base < 0 || base > 1<<62 {
		return batchHeader{}, errBadHeader
	}
	return batchHeader{
		position:     position,
		sizeBytes:    int64(length) + lengthOverhead,
		baseOffset:   kafka.Offset(base),
		lastOffset:   kafka.Offset(base + int64(delta)),
		leaderEpoch:  kafka.LeaderEpoch(binary.BigEndian.Uint32(b[epochPosition:])),
		maxTimestamp: int64(binary.BigEndian.Uint64(b[maxTimestampPosition:])),
		crc:          binary.BigEndian.Uint32(b[crcPosition:]),
		attributes:   int16(binary.BigEndian.Uint16(b[attributesPosition:])),
		producer:     parseProducerFields(b[producerPosition:]),
	}, nil
}

// walkBufferBytes is read at once by a walk; an index interval fits.
const walkBufferBytes = 8 << 10

// walkBuffers are the buffers of walks; they carry no state between uses.
var walkBuffers = sync.Pool{New: func() any { return new([walkBufferBytes]byte) }}

// headerWalk goes over the batch headers of a file. The caller calls close.
type headerWalk struct {
	f        vfs.File
	position int64 // Of the next batch.
	limit    int64 // Of the bytes that may be read.
	buf      *[walkBufferBytes]byte
	from, to int64 // The bytes of the file that buf holds.
}

func newHeaderWalk(f vfs.File, position, limit int64) headerWalk {
	return headerWalk{
		f: f, position: position, limit: limit,
		buf: walkBuffers.Get().(*[walkBufferBytes]byte),
	}
}

func (w *headerWalk) close() { walkBuffers.Put(w.buf) }

// next returns the header of the next batch, which lies within the limit as a
// whole. It returns io.EOF at the limit and errBadHeader where no batch is.
func (w *headerWalk) next() (batchHeader, error) {
	if w.position >= w.limit {
		return batchHeader{}, io.EOF
	}
	if w.limit-w.position < headerBytes {
		return batchHeader{}, errBadHeader
	}
	if w.position < w.from || w.position+headerBytes > w.to {
		if err := w.fill(); err != nil {
			return batchHeader{}, err
		}
	}
	h, err := parseHeader(w.buf[w.position-w.from:], w.position)
	if err != nil {
		return h, err
	}
	if h.sizeBytes > w.limit-w.position {
		return h, errBadHeader
	}
	w.position += h.sizeBytes
	return h, nil
}

func (w *headerWalk) fill() error {
	n := min(walkBufferBytes, w.limit-w.position)
	w.from, w.to = 0, 0
	if _, err := w.f.ReadAt(w.buf[:n], w.position); err != nil {
		return fmt.Errorf("read batch headers at position %d: %w", w.position, err)
	}
	w.from, w.to = w.position, w.position+n
	return nil
}
