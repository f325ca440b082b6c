package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// sectorBytes is the smallest piece that a disk writes whole.
const sectorBytes = 512

// raiseKnownEnd looks at the place where recovery found no whole batch. If no
// crash leaves what is there, it was whole once: the known end rises to where
// the batches behind it end, because nobody knows which were acknowledged. It
// reports whether that is so.
func (l *Log) raiseKnownEnd(segments []*segment, i int, size int64) (rotten bool, err error) {
	at := l.w.end
	if at.position == size {
		return false, nil // Nothing is there: a later segment came before it to the disk.
	}
	rotten, behind, err := l.isRotten(at, size)
	if err != nil || !rotten {
		return false, err
	}
	end := max(l.knownEnd, at.nextOffset+1)
	if behind.nextOffset != kafka.NoOffset {
		last, err := l.endOfBatches(l.w.file, behind, size)
		if err != nil {
			return false, err
		}
		end = max(end, last)
	}
	if n := len(segments) - 1; n > i {
		s := segments[n]
		f, err := s.open(vfs.ReadWrite)
		if err != nil {
			return false, err
		}
		last, err := l.endOfBatches(f, boundary{0, s.baseOffset}, s.size.Load())
		if err != nil {
			return false, err
		}
		end = max(end, last)
	}
	l.knownEnd = end
	return true, nil
}

// isRotten tells rot from a torn write: the bytes from a boundary to the next
// whole batch, or to the end of the file, are not what a crash leaves. A kill
// leaves the beginning of a write. A loss of power leaves sectors that never
// reached the disk, and they read as zeros from the boundary or their own start
// on. It also returns where the next whole batch begins, if there is one.
func (l *Log) isRotten(at boundary, size int64) (rotten bool, behind boundary, err error) {
	to := size
	h, found, err := l.findBatch(boundary{at.position + 1, at.nextOffset}, size, at.nextOffset)
	switch {
	case err != nil:
		return false, behind, err
	case found:
		to, behind = h.position, boundary{h.position, h.baseOffset}
	default:
		behind.nextOffset = kafka.NoOffset
		if whole, err := l.isBeginning(at, size); err != nil || whole {
			return false, behind, err
		}
	}
	buf := make([]byte, 64<<10)
	for from := at.position; from < to; {
		buf = buf[:min(int64(cap(buf)), size-from)]
		if err := readFull(l.w.file, buf, from); err != nil {
			return false, behind, err
		}
		for rest := buf; len(rest) > 0 && from < to; {
			n := min(int64(len(rest)), sectorBytes-from%sectorBytes)
			if len(bytes.TrimLeft(rest[:n], "\x00")) == 0 {
				return false, behind, nil
			}
			rest, from = rest[n:], from+n
		}
	}
	return true, behind, nil
}

// isBeginning reports whether the file ends within the batch at a boundary, as
// after a kill in the middle of a write. If the CRC of what is there is right, it
// is all of a batch whose length is damaged.
func (l *Log) isBeginning(at boundary, size int64) (bool, error) {
	if size-at.position < headerBytes {
		return true, nil
	}
	var b [headerBytes]byte
	if err := readFull(l.w.file, b[:], at.position); err != nil {
		return false, err
	}
	h, err := parseHeader(b[:], at.position)
	if err != nil || h.end().position <= size || size-at.position > 1<<30 {
		return false, nil
	}
	sum := crc32.New(castagnoli)
	from := at.position + attributesPosition
	if _, err := io.CopyN(sum, io.NewSectionReader(l.w.file, from, size-from), size-from); err != nil {
		return false, fmt.Errorf("read at position %d: %w", from, err)
	}
	return sum.Sum32() != binary.BigEndian.Uint32(b[crcPosition:]), nil
}

// endOfBatches returns the offset after the last of the batches that follow one
// another from a boundary on.
func (l *Log) endOfBatches(f vfs.File, at boundary, size int64) (kafka.Offset, error) {
	scan := newBatchScan(f, at.position, size)
	defer scan.close()
	end := at.nextOffset
	for {
		b, err := scan.next()
		var torn *tornError
		switch {
		case err == nil && (b.BaseOffset() == end || b.BaseOffset() > end && l.mayHaveGaps()):
			end = b.LastOffset() + 1
			continue
		case err == nil, errors.As(err, &torn), errors.Is(err, io.EOF):
			return end, nil
		}
		return end, err
	}
}
