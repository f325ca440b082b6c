package commitlog

import (
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Chunk is a run of whole, checked batches of one segment. It holds on to the
// segment's file until Release. The zero value is an empty chunk.
type Chunk struct {
	log        *Log
	segment    *segment
	file       vfs.File
	position   int64
	length     int64
	nextOffset kafka.Offset
}

// Size returns the chunk's length in bytes.
func (c Chunk) Size() int { return int(c.length) }

// NextOffset returns where to read on: one past the last offset of the chunk,
// or the offset that was asked for if the chunk is empty.
func (c Chunk) NextOffset() kafka.Offset { return c.nextOffset }

// File returns the range of the file that is the chunk, for sendfile. It
// reports false if the chunk is empty. The file is valid until Release.
func (c Chunk) File() (f vfs.File, position, length int64, ok bool) {
	return c.file, c.position, c.length, c.length > 0
}

// AppendTo appends the chunk's bytes to dst.
func (c Chunk) AppendTo(dst []byte) ([]byte, error) {
	if c.length == 0 {
		return dst, nil
	}
	n := len(dst)
	dst = slices.Grow(dst, int(c.length))[:n+int(c.length)]
	if _, err := c.file.ReadAt(dst[n:], c.position); err != nil {
		c.Failed(err)
		return dst[:n], fmt.Errorf("read %s at position %d: %w",
			c.segment.path(logSuffix), c.position, err)
	}
	return dst, nil
}

// Failed reports that the file's range could not be read. The next Read of it tries the
// disk itself, and so has an error for the client: a response that breaks off while it is
// sent tells a client nothing.
func (c Chunk) Failed(err error) {
	c.segment.distrust(c.position, c.position+c.length)
	if !c.segment.deleted.Load() {
		c.log.reportRead(fmt.Errorf("read %s at position %d: %w", c.segment.path(logSuffix), c.position, err))
	}
}

// Release gives the segment up. It must be called once; on an empty chunk it
// does nothing.
func (c Chunk) Release() {
	if c.segment != nil {
		c.segment.release()
	}
}
