package record

import (
	"errors"
	"io"
)

// stream reads records out of a payload that is decompressed piece by piece.
//
// Invariant: what was read plus room is the bound the stream was opened with.
type stream struct {
	codec Codec
	from  source
	chunk []byte // What is left of the current piece.
	room  int64  // What the bound allows beyond the current piece.
}

// refill drops the current piece for the next one, which is not empty. The
// error is the bare io.EOF after the last piece.
func (s *stream) refill() error {
	s.chunk = nil
	for len(s.chunk) == 0 {
		piece, err := s.from.next(s.room)
		if err == io.EOF { //nolint:errorlint // Only the bare value means the end.
			return io.EOF
		}
		if err == nil && int64(len(piece)) > s.room {
			err = ErrTooLarge
		}
		if err != nil {
			return codecError(s.codec, err)
		}
		s.room -= int64(len(piece))
		s.chunk = piece
	}
	return nil
}

// need makes the current piece non-empty.
func (s *stream) need() error {
	if len(s.chunk) > 0 {
		return nil
	}
	if err := s.refill(); err != nil {
		if errors.Is(err, io.EOF) {
			return errTruncated
		}
		return err
	}
	return nil
}

func (s *stream) readByte() (byte, error) {
	if err := s.need(); err != nil {
		return 0, err
	}
	c := s.chunk[0]
	s.chunk = s.chunk[1:]
	return c, nil
}

// varint reads an integer of at most maxLen bytes and says how many it had.
func (s *stream) varint(maxLen int) (v, size int64, err error) {
	var u uint64
	for n := range maxLen {
		c, err := s.readByte()
		if err != nil {
			return 0, 0, err
		}
		u |= uint64(c&0x7F) << (7 * n)
		if c < 0x80 {
			if overflows(c, n, maxLen) {
				return 0, 0, errVarint
			}
			return zigzag(u), int64(n + 1), nil
		}
	}
	return 0, 0, errVarint
}

// skip drops n bytes.
func (s *stream) skip(n int64) error {
	for n > 0 {
		if err := s.need(); err != nil {
			return err
		}
		step := min(n, int64(len(s.chunk)))
		s.chunk = s.chunk[step:]
		n -= step
	}
	return nil
}

// recordReader reads the body of one record that lies in several pieces.
// left is what is left of it.
type recordReader struct {
	s    *stream
	left int64
}

func (r *recordReader) varint(maxLen int) (int64, error) {
	v, size, err := r.s.varint(maxLen)
	r.left -= size
	if err == nil && r.left < 0 {
		err = errTruncated
	}
	return v, err
}

// skipBytes reads a length of at least least and drops as many bytes.
func (r *recordReader) skipBytes(least int64) (length int64, err error) {
	length, err = r.varint(maxVarint32)
	switch {
	case err != nil:
		return 0, err
	case length < least:
		return 0, errLength
	case length > r.left:
		return 0, errTruncated
	}
	n := max(length, 0)
	r.left -= n
	return length, r.s.skip(n)
}

// read fills f from the body, without the positions, which mean nothing here.
func (r *recordReader) read(f *fields) error {
	c, err := r.s.readByte()
	if err != nil {
		return err
	}
	r.left--
	f.attributes = c
	if f.timestampDelta, err = r.varint(maxVarint64); err != nil {
		return err
	}
	if f.offsetDelta, err = r.varint(maxVarint32); err != nil {
		return err
	}
	if f.keyLen, err = r.skipBytes(-1); err != nil {
		return err
	}
	if f.valueLen, err = r.skipBytes(-1); err != nil {
		return err
	}
	if f.headerCount, err = r.varint(maxVarint32); err != nil {
		return err
	}
	if f.headerCount < 0 || f.headerCount > r.left/minHeader {
		return errHeaderCount
	}
	for range f.headerCount {
		if _, err = r.skipBytes(0); err != nil {
			return err
		}
		if _, err = r.skipBytes(-1); err != nil {
			return err
		}
	}
	if r.left != 0 {
		return errTrailing
	}
	return nil
}
