package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// scanBufferBytes is read at once when a segment is scanned. A larger batch
// makes the buffer grow for as long as the scan.
const scanBufferBytes = 256 << 10

// scanBuffers are the buffers of scans; they carry no state between uses.
var scanBuffers = sync.Pool{New: func() any {
	b := make([]byte, scanBufferBytes)
	return &b
}}

// batchScan reads whole batches of a file one after another and checks each.
// The caller calls close.
type batchScan struct {
	f        vfs.File
	position int64 // Of the next batch.
	size     int64
	buf      *[]byte
	rest     []byte // Read and not yet returned.
}

// tornError says why a scan ended before the end of the file.
type tornError struct{ reason string }

// Error implements error.
func (e *tornError) Error() string { return e.reason }

func newBatchScan(f vfs.File, position, size int64) *batchScan {
	return &batchScan{f: f, position: position, size: size, buf: scanBuffers.Get().(*[]byte)}
}

func (s *batchScan) close() {
	if cap(*s.buf) == scanBufferBytes {
		scanBuffers.Put(s.buf)
	}
}

// next returns the next batch, valid until the call after it, with its CRC
// checked. It returns io.EOF at the end and a *tornError where no whole, intact
// batch is.
func (s *batchScan) next() (record.Batch, error) {
	if s.position >= s.size {
		return record.Batch{}, io.EOF
	}
	for {
		b, rest, err := record.Next(s.rest)
		if errors.Is(err, record.ErrShort) {
			if err := s.fill(); err != nil {
				return b, err
			}
			continue
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err == nil && (b.BaseOffset() < 0 || b.LastOffsetDelta() < 0) {
			err = errors.New("negative offset")
		}
		if err != nil {
			return b, &tornError{err.Error()}
		}
		s.rest = rest
		s.position += int64(b.Size())
		return b, nil
	}
}

// fill reads more of the file behind what is left of the buffer.
func (s *batchScan) fill() error {
	have := len(s.rest)
	left := s.size - s.position - int64(have)
	if left == 0 {
		return &tornError{"the file ends within a batch"}
	}
	want := int64(scanBufferBytes)
	if n, err := record.Size(s.rest); err == nil {
		if int64(n) > s.size-s.position {
			return &tornError{"the file ends within a batch"}
		}
		want = max(want, int64(n))
	}
	want = min(want, left+int64(have))
	if want > int64(cap(*s.buf)) {
		old := s.buf
		grown := make([]byte, want)
		s.buf = &grown
		copy(grown, s.rest)
		if cap(*old) == scanBufferBytes {
			scanBuffers.Put(old)
		}
	} else {
		copy((*s.buf)[:cap(*s.buf)], s.rest)
	}
	b := (*s.buf)[:want]
	if n, err := s.f.ReadAt(b[have:], s.position+int64(have)); n < len(b)-have {
		if errors.Is(err, io.EOF) {
			return &tornError{"the file is shorter than it was"}
		}
		return fmt.Errorf("read at position %d: %w", s.position, err)
	}
	s.rest = b
	return nil
}

// scanSegmentLocked reads segment s from the writer's end on and takes every
// whole batch that continues the log into the writer's state. It returns why it
// ended before the end of the file, if it did. The segment after it begins at
// nextBase; NoOffset if there is none.
//
// Offsets may leave gaps if the checkpoint says so; they never fall.
func (l *Log) scanSegmentLocked(s *segment, size int64, nextBase kafka.Offset) (*tornError, error) {
	w := &l.w
	scan := newBatchScan(w.file, w.end.position, size)
	defer scan.close()
	interval := l.options.Load().Config.IndexIntervalBytes
	for {
		b, err := scan.next()
		var torn *tornError
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case errors.As(err, &torn):
			return torn, nil
		case err != nil:
			return nil, fmt.Errorf("scan %s: %w", s.path(logSuffix), err)
		case b.BaseOffset() < w.end.nextOffset || b.BaseOffset() > w.end.nextOffset && !l.mayHaveGaps():
			return &tornError{fmt.Sprintf("batch at offset %d where %d was due",
				b.BaseOffset(), w.end.nextOffset)}, nil
		case int64(b.LastOffset()-s.baseOffset) > math.MaxInt32:
			return &tornError{"offset is too far from the segment's base"}, nil
		case b.BaseOffset() > w.end.nextOffset && l.isMisplaced(b, scan, nextBase):
			return &tornError{fmt.Sprintf("batch at offset %d, behind a gap from %d on that nothing else confirms",
				b.BaseOffset(), w.end.nextOffset)}, nil
		}
		if base := b.BaseOffset(); base > w.end.nextOffset {
			l.noteGapLocked(base)
		}
		l.readBack.note(b)
		w.noteBatch(b, interval)
		l.assignEpochLocked(b.LeaderEpoch(), b.BaseOffset())
		if b.ProducerID() >= 0 {
			l.noteProducerLocked(b)
		}
	}
}

// isMisplaced reports whether a batch behind a gap is damaged in its offset,
// which no CRC covers. What comes next tells: it lies above the batch if the gap
// is a true one. At the log's end, where nothing comes, the gap must lead to
// what is known to have been the end.
func (l *Log) isMisplaced(b record.Batch, scan *batchScan, nextBase kafka.Offset) bool {
	end := b.LastOffset() + 1
	var header [headerBytes]byte
	if scan.size-scan.position >= headerBytes {
		if n, _ := scan.f.ReadAt(header[:], scan.position); n == headerBytes {
			if h, err := parseHeader(header[:], scan.position); err == nil {
				return h.baseOffset < end
			}
		}
	}
	if nextBase != kafka.NoOffset {
		return nextBase < end
	}
	return end != l.knownEnd
}
