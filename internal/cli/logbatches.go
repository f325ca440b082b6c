package cli

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/strandline/strandline/internal/record"
)

const (
	// segmentReadBytes is read at once from a segment.
	segmentReadBytes = 1 << 20
	// maxRecordBytes bounds what a batch may decompress to when its records are
	// looked at.
	maxRecordBytes = 1 << 30
)

// storedBatch is a batch in a file. The batch is good until the next one.
type storedBatch struct {
	record.Batch
	position int64
}

// brokenError says where a file stops making sense.
type brokenError struct {
	position int64
	left     int64 // Bytes from there to the end of the file.
	reason   string
	// torn tells that a write may have been cut short there: nothing whole follows.
	torn bool
}

// Error implements error.
func (e *brokenError) Error() string {
	return fmt.Sprintf("at position %d: %s", e.position,
		e.reason)
}

// batchesOf iterates over the batches of a segment, whose checksums are not
// checked. Its last error is a *brokenError where the file holds no batch.
func batchesOf(path string) iter.Seq2[storedBatch, error] {
	return func(yield func(storedBatch, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(storedBatch{}, err)
			return
		}
		defer f.Close() //nolint:errcheck // It is only read.
		info, err := f.Stat()
		if err != nil {
			yield(storedBatch{}, err)
			return
		}
		walkBatches(f, info.Size(), yield)
	}
}

func walkBatches(f io.ReaderAt, size int64, yield func(storedBatch, error) bool) {
	var buf []byte
	position := int64(0) // Of buf in the file.
	for position < size {
		b, rest, err := record.Next(buf)
		if errors.Is(err, record.ErrShort) {
			more, err := readMore(f, buf, position, size)
			if err != nil {
				yield(storedBatch{}, err)
				return
			}
			buf = more
			continue
		}
		if err != nil {
			yield(storedBatch{}, &brokenError{
				position: position, left: size - position, reason: err.Error(),
				torn: allZero(buf),
			})
			return
		}
		if !yield(storedBatch{b, position}, nil) {
			return
		}
		position += int64(b.Size())
		buf = rest
	}
}

// readMore returns buf, which begins at position and ends within a batch, with
// more of the file behind it.
func readMore(f io.ReaderAt, buf []byte, position, size int64) ([]byte, error) {
	left := size - position
	short := &brokenError{
		position: position, left: left, reason: "the file ends within a batch",
		torn: true,
	}
	if int64(len(buf)) == left {
		return nil, short
	}
	want := int64(segmentReadBytes)
	if n, err := record.Size(buf); err == nil {
		if int64(n) > left {
			return nil, short
		}
		want = max(want, int64(n))
	}
	more := make([]byte, min(want, left))
	n, err := f.ReadAt(more, position)
	if err != nil && !(errors.Is(err, io.EOF) && n == len(more)) {
		return nil, fmt.Errorf("read at position %d: %w", position, err)
	}
	return more, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
