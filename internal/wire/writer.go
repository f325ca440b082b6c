package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/strandline/strandline/internal/vfs"
)

const (
	// copyBytes is up to where a range of a file is copied into the buffer: below,
	// a read and a share of one write cost less than a sendfile of its own.
	copyBytes = 16 << 10
	// keptBufferBytes is the largest buffer that a Writer keeps for its next use.
	keptBufferBytes = 64 << 10
	// maxCopiedBytes bounds what is copied from files into one response.
	maxCopiedBytes = 1 << 20
	// batchBytes is how much is encoded before it is sent.
	batchBytes = 64 << 10
)

// Chunk is a run of stored bytes that a response contains as they are.
// *commitlog.Chunk is one.
type Chunk interface {
	// Size returns the number of bytes.
	Size() int
	// File returns the range of a file that holds the bytes, and false if they
	// are in no file. The file is open until Release.
	File() (f vfs.File, position, length int64, ok bool)
	// AppendTo appends the bytes to dst.
	AppendTo(dst []byte) ([]byte, error)
	// Release gives up the file.
	Release()
}

// Writer collects the bodies of responses: bytes that it holds, and ranges of
// files that the kernel sends without copying them here.
type Writer struct {
	// buf holds everything but the file ranges. Part i is sent after
	// buf[:parts[i].at]. Invariant: parts are ordered by at.
	buf   []byte
	parts []part

	// The response being encoded: where it begins, and what its parts hold.
	start, firstPart int
	partBytes        int64
	copied           int64 // Bytes copied from files.
	err              error

	// What was sent: buf[:sent], parts[:sentParts], and sentOfPart bytes more.
	sent, sentParts int
	sentOfPart      int64

	pendingBytes int64 // Encoded and not sent; grows with finish.
	discard      bool  // The connection is dead: drop everything.
}

// part is a range of a file within a response.
type part struct {
	at               int
	file             vfs.File
	fd               uintptr
	hasFD            bool
	position, length int64
	chunk            Chunk  // Released when the part was sent, unless nil.
	release          func() // Likewise.
}

func (p *part) done() {
	if p.chunk != nil {
		p.chunk.Release()
	}
	if p.release != nil {
		p.release()
	}
	*p = part{}
}

// Append lets encode append to the response and takes what it returns, which
// must be dst with bytes after it. dst is valid during the call only.
func (w *Writer) Append(encode func(dst []byte) []byte) {
	if w.discard {
		return
	}
	w.buf = encode(w.buf)
}

// Bytes appends a copy of b.
func (w *Writer) Bytes(b []byte) {
	if !w.discard {
		w.buf = append(w.buf, b...)
	}
}

// Chunk appends c and takes it over: the writer releases it, once, whatever
// happens, and until then c must stay as it is, even if that is after Encode
// returned.
func (w *Writer) Chunk(c Chunk) {
	if w.discard || c.Size() == 0 {
		c.Release()
		return
	}
	file, position, length, ok := c.File()
	if ok && !w.mayCopy(length) {
		w.addPart(part{file: file, position: position, length: length, chunk: c})
		return
	}
	var err error
	before, want := len(w.buf), c.Size()
	w.buf, err = c.AppendTo(w.buf)
	if err == nil && len(w.buf)-before != want {
		err = fmt.Errorf("chunk of %d bytes appended %d", want, len(w.buf)-before)
	}
	w.err = errors.Join(w.err, err)
	c.Release()
}

// File appends a range of a file. The file must not be closed, and the range
// not be cut off, before release is called, which happens once, whatever else
// happens. A nil release is allowed.
func (w *Writer) File(f vfs.File, position, length int64, release func()) {
	p := part{file: f, position: position, length: length, release: release}
	if w.discard || length <= 0 {
		p.done()
		return
	}
	if !w.mayCopy(length) {
		w.addPart(p)
		return
	}
	n := len(w.buf)
	w.buf = slices.Grow(w.buf, int(length))[:n+int(length)]
	if _, err := f.ReadAt(w.buf[n:], position); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("read %d bytes at position %d: %w", length, position, err))
	}
	p.done()
}

// mayCopy decides whether a range of a file is copied, and counts it.
func (w *Writer) mayCopy(length int64) bool {
	if length > copyBytes || w.copied+length > maxCopiedBytes {
		return false
	}
	w.copied += length
	return true
}

// heldBytes is the memory that the writer holds.
func (w *Writer) heldBytes() int64 {
	return int64(cap(w.buf)) + int64(cap(w.parts))*int64(unsafe.Sizeof(part{}))
}

// Discards reports whether what is written is dropped, because the connection
// is dead.
func (w *Writer) Discards() bool { return w.discard }

func (w *Writer) addPart(p part) {
	p.at = len(w.buf)
	p.fd, p.hasFD = p.file.Fd()
	w.parts = append(w.parts, p)
	w.partBytes += p.length
}

// begin starts a response.
func (w *Writer) begin(correlationID int32, flexible bool) {
	w.start, w.firstPart, w.partBytes, w.copied, w.err = len(w.buf), len(w.parts), 0, 0, nil
	if !w.discard {
		w.buf = appendResponseHeader(w.buf, correlationID, flexible)
	}
}

// finish ends the response and returns its size with the length prefix. After
// an error the response is taken back, and the connection must end with what
// came before it.
func (w *Writer) finish(err error) (sizeBytes int64, _ error) {
	if w.discard {
		return 0, nil
	}
	size := int64(len(w.buf)-w.start) + w.partBytes
	if err = errors.Join(err, w.err); err == nil && size-lengthBytes > math.MaxInt32 {
		err = fmt.Errorf("response of %d bytes is longer than the protocol allows", size)
	}
	if err != nil {
		w.buf = w.buf[:w.start]
		for i := range w.parts[w.firstPart:] {
			w.parts[w.firstPart+i].done()
		}
		w.parts = w.parts[:w.firstPart]
		return 0, err
	}
	binary.BigEndian.PutUint32(w.buf[w.start:], uint32(size-lengthBytes))
	w.pendingBytes += size
	return size, nil
}

// empty reports whether everything was sent.
func (w *Writer) empty() bool { return w.sentParts == len(w.parts) && w.sent == len(w.buf) }

// reset forgets everything, which releases what was not sent.
func (w *Writer) reset() {
	for i := w.sentParts; i < len(w.parts); i++ {
		w.parts[i].done()
	}
	if cap(w.buf) > keptBufferBytes {
		w.buf = nil
	}
	clear(w.parts)
	*w = Writer{buf: w.buf[:0], parts: w.parts[:0]}
}

// unsentBytes returns the bytes of the buffer to send next, and whether a part
// follows them.
func (w *Writer) unsentBytes() (b []byte, more bool) {
	if w.sentParts < len(w.parts) {
		return w.buf[w.sent:w.parts[w.sentParts].at], true
	}
	return w.buf[w.sent:], false
}

// sentBytes notes that n bytes of the buffer were sent.
func (w *Writer) sentBytes(n int) {
	w.sent += n
	w.pendingBytes -= int64(n)
}

// sentPartBytes notes that n bytes of the current part were sent.
func (w *Writer) sentPartBytes(n int64) {
	p := &w.parts[w.sentParts]
	w.sentOfPart += n
	w.pendingBytes -= n
	if w.sentOfPart == p.length {
		p.done()
		w.sentParts++
		w.sentOfPart = 0
	}
}
