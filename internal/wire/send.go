package wire

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// stageBytes is what is read from a file at once where sendfile can't be used.
const stageBytes = 64 << 10

// errWouldBlock says that the socket takes no more for now.
var errWouldBlock = errors.New("socket would block")

// sendTo writes to a non-blocking socket until everything is sent, or the
// socket takes no more (errWouldBlock). It returns the bytes written.
func (w *Writer) sendTo(fd int) (total int64, err error) {
	for !w.empty() {
		var n int64
		b, more := w.unsentBytes()
		switch {
		case len(b) > 0:
			n, err = sendBytes(fd, b, more)
			if n > 0 {
				w.sentBytes(int(n))
			}
		case w.parts[w.sentParts].hasFD:
			n, err = w.sendPart(fd)
		default:
			n, err = w.stagePart(func(b []byte) (int64, error) { return sendBytes(fd, b, true) })
		}
		total += max(n, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return total, errWouldBlock
		case err != nil && !errors.Is(err, unix.EINTR):
			return total, err
		}
	}
	return total, nil
}

// sendBytes sends b; with more set the kernel waits for what follows before it
// makes a packet that is not full.
func sendBytes(fd int, b []byte, more bool) (int64, error) {
	if !more {
		n, err := unix.Write(fd, b)
		return int64(n), err
	}
	n, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
	return int64(n), err
}

// sendPart sends of the current part what the socket takes. The offset is
// explicit: a file's position is shared by everyone who reads it.
func (w *Writer) sendPart(fd int) (int64, error) {
	p := &w.parts[w.sentParts]
	position := p.position + w.sentOfPart
	n, err := unix.Sendfile(fd, int(p.fd), &position, int(p.length-w.sentOfPart))
	switch {
	case errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF):
		return 0, p.failed(w.sentOfPart, err) // The file's errors, not the socket's.
	case err != nil:
		return 0, err
	case n == 0:
		return 0, p.failed(w.sentOfPart, io.ErrUnexpectedEOF)
	}
	w.sentPartBytes(int64(n))
	return int64(n), nil
}

// stagePart sends the next bytes of the current part through a buffer.
func (w *Writer) stagePart(send func([]byte) (int64, error)) (int64, error) {
	p := &w.parts[w.sentParts]
	b := make([]byte, min(stageBytes, p.length-w.sentOfPart))
	n, err := p.file.ReadAt(b, p.position+w.sentOfPart)
	if n == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, p.failed(w.sentOfPart, err)
	}
	sent, err := send(b[:n])
	if sent > 0 {
		w.sentPartBytes(sent)
	}
	return sent, err
}

// failer is a Chunk that wants to hear that its bytes could not be read.
type failer interface{ Failed(err error) }

// failed makes the error of a part that could not be read.
func (p *part) failed(sent int64, err error) error {
	if c, ok := p.chunk.(failer); ok {
		c.Failed(err)
	}
	return &closeError{ClosedResponse, fmt.Errorf(
		"stored chunk of %d bytes at position %d: failed after %d: %w", p.length, p.position, sent, err)}
}

// sendConn writes everything to a connection without a descriptor of its own:
// TLS, or a network in memory. It blocks.
func (w *Writer) sendConn(c net.Conn, progress func(n int64)) error {
	write := func(b []byte) (int64, error) {
		n, err := c.Write(b)
		progress(int64(n))
		return int64(n), err
	}
	for !w.empty() {
		b, _ := w.unsentBytes()
		if len(b) == 0 {
			if _, err := w.stagePart(write); err != nil {
				return err
			}
			continue
		}
		n, err := write(b[:min(len(b), stageBytes)])
		w.sentBytes(int(n))
		if err != nil {
			return err
		}
	}
	return nil
}
