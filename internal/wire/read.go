package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// reader reads frames and hands them to their handlers. Many small frames come
// with one read; a large one is read straight to where it stays.
//
//	block: | ... handled ... | first..last: buffered | ... free ... |
//
// While nothing is buffered the reader holds no block, so an idle connection
// costs no memory. Only the connection's own goroutine uses it.
type reader struct {
	conn        *Conn
	block       *block
	first, last int
	limit       int  // Read no further than here.
	hint        int  // Size of the last frame: that of the next, it is supposed.
	trusted     int  // Size of the largest frame so far, up to a limit.
	inFrame     bool // The sweeper was told that a frame was begun.
	readErr     error
	received    time.Time
	clientID    string // Of the last request: it hardly ever changes.
	// readable is readSocket as a value, made once.
	readable func(fd uintptr) bool
	// unflushed says that answers were queued and nobody was told.
	unflushed bool
	// peek is where the first bytes arrive on a connection without a socket: it
	// may wait for them for hours.
	peek [lengthBytes]byte
}

// loop serves requests until an error, which says why.
func (r *reader) loop(ctx context.Context) error {
	for {
		select {
		case <-r.conn.quit:
			return io.EOF
		default:
		}
		frame, err := r.next()
		if err != nil {
			return err
		}
		if err := r.handle(ctx, frame); err != nil {
			return err
		}
	}
}

// next returns the next frame without its length. It is valid while its block
// is retained.
func (r *reader) next() ([]byte, error) {
	for {
		size, err := r.frameSize()
		if err != nil {
			return nil, err
		}
		if size > 0 && r.last-r.first >= size {
			frame := r.block.data[r.first+lengthBytes : r.first+size : r.first+size]
			r.first += size
			r.hint = size
			r.trusted = max(r.trusted, min(size, 1<<keptBlockShift))
			r.noteFrame(false)
			return frame, nil
		}
		// From here on the loop may wait: first send what can be sent.
		r.flush()
		if err := r.makeRoom(size); err != nil {
			return nil, err
		}
		r.noteFrame(r.last > r.first)
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// frameSize returns the size of the first frame in the buffer with its length,
// or 0 if the length has not arrived yet.
func (r *reader) frameSize() (int, error) {
	if r.last-r.first < lengthBytes {
		return 0, nil
	}
	prefix := r.block.data[r.first:r.last]
	size := int32(binary.BigEndian.Uint32(prefix))
	if size >= minRequestBytes && int(size) <= r.conn.server.limits.Load().MaxRequestBytes {
		return lengthBytes + int(size), nil
	}
	if r.conn.activity.requests.Load() == 0 {
		if what := foreignProtocol(prefix); what != "" {
			return 0, &closeError{ClosedInvalid, errors.New(what)}
		}
	}
	switch {
	case size < 0:
		return 0, invalid("frame of negative length %d", size)
	case size < minRequestBytes:
		return 0, invalid("frame of %d bytes is shorter than a request header", size)
	default:
		return 0, invalid("%srequest of %d bytes is larger than socket.request.max.bytes=%d: "+
			"send smaller requests or raise that limit", r.nameIn(prefix), size,
			r.conn.server.limits.Load().MaxRequestBytes)
	}
}

// nameIn returns the name of the API that a frame is for, with a space behind it,
// or "" if it is not known.
func (r *reader) nameIn(prefix []byte) string {
	if len(prefix) < lengthBytes+2 {
		return ""
	}
	api, _ := r.conn.server.options.APIs(int16(binary.BigEndian.Uint16(prefix[lengthBytes:])))
	return api.title()
}

// title returns the API's name with a space behind it, or "" if it has none.
func (a *API) title() string {
	if a.Name == "" {
		return ""
	}
	return a.Name + " "
}

func invalid(format string, args ...any) error {
	return &closeError{ClosedInvalid, fmt.Errorf(format, args...)}
}

// makeRoom sees to it that a frame of size bytes (0: unknown) fits behind first,
// and decides how far to read.
func (r *reader) makeRoom(size int) error {
	if r.first == r.last && r.block != nil {
		r.dropBlock()
	}
	switch {
	case r.block == nil:
		return nil // fill takes one when there is something to read.
	case size == 0:
		size = smallBlockBytes / 2 // A few bytes are there: make room for small frames.
	}
	if r.first+size > len(r.block.data) {
		if err := r.moveTo(size); err != nil {
			return err
		}
	}
	// Of a large frame nothing beyond its end is read, as it would have to move.
	limit := len(r.block.data)
	if size > smallBlockBytes {
		limit = r.first + size
	}
	charged := int(r.block.share.bytes)
	if charged == r.last && charged < limit {
		charged = min(limit, 2*charged)
		if err := r.extendShare(charged); err != nil {
			return err
		}
	}
	r.limit = min(limit, charged)
	return nil
}

// moveTo moves the buffered bytes to the front of a block of at least size
// bytes.
func (r *reader) moveTo(size int) error {
	old := r.block
	if old.refs.Load() == 1 {
		if size <= len(old.data) {
			r.last = copy(old.data, old.data[r.first:r.last])
			r.first = 0
			return nil
		}
		old.uncharge() // Its share must not be held while waiting for the next one.
	}
	b, err := r.takeBlock(size)
	if err != nil {
		return err
	}
	r.last = copy(b.data, old.data[r.first:r.last])
	r.first = 0
	r.block = b
	old.release()
	return nil
}

// firstShareBytes is what a client may announce and be believed. Beyond, it gets
// as much again as it has sent of a frame, up to the size of the largest that it
// ever completed: who announces 100 MiB and sends nothing must not take the
// memory of all others.
const firstShareBytes = 64 << 10

// takeBlock waits for a block.
func (r *reader) takeBlock(size int) (*block, error) {
	pool := &r.conn.server.blocks
	charge := max(min(size, max(r.trusted, firstShareBytes)), smallBlockBytes)
	h := &r.conn.client.requests
	b, err := pool.tryGet(size, charge, h)
	if b == nil && err == nil {
		err = r.waitForMemory(func() (bool, error) {
			b, err = pool.get(size, charge, h, r.conn.quit)
			return b != nil, err
		})
	}
	return b, err
}

// extendShare waits until the block may be filled up to total bytes.
func (r *reader) extendShare(total int) error {
	budget, s := &r.conn.server.blocks.budget, &r.block.share
	more := int64(total) - s.bytes
	if budget.extendNow(s, more) {
		return nil
	}
	r.conn.activity.starved.Store(r.conn.server.clock())
	defer r.conn.activity.starved.Store(0)
	return r.waitForMemory(func() (bool, error) { return budget.extend(s, more, r.conn.quit), nil })
}

// waitForMemory calls wait, which returns false if the connection was killed.
// The client's time limits begin anew after it.
func (r *reader) waitForMemory(wait func() (bool, error)) error {
	a := &r.conn.activity
	a.noMemory.Store(true)
	ok, err := wait()
	if err == nil && !ok {
		err = io.EOF
	}
	now := r.conn.server.clock()
	a.opened.Store(now)
	a.lastRead.Store(now)
	if r.inFrame {
		a.frameSince.Store(now)
	}
	a.noMemory.Store(false)
	return err
}

func (r *reader) dropBlock() {
	r.block.release()
	r.block, r.first, r.last = nil, 0, 0
}

// fill waits for bytes and reads some.
func (r *reader) fill() error {
	r.readErr = nil
	before := r.last - r.first
	err := r.read()
	if err == nil {
		err = r.readErr
	}
	n := r.last - r.first - before
	if n == 0 && err == nil {
		err = io.EOF
	}
	r.noteProgress(n)
	if n > 0 {
		return nil // An error will come again.
	}
	return err
}

func (r *reader) read() error {
	if r.conn.raw != nil {
		return r.conn.raw.Read(r.readable)
	}
	if r.block != nil {
		n, err := r.conn.net.Read(r.block.data[r.last:r.limit])
		r.last += n
		return err
	}
	n, err := r.conn.net.Read(r.peek[:])
	if n == 0 {
		return err
	}
	if err := r.startBlock(); err != nil {
		return err
	}
	r.last = copy(r.block.data, r.peek[:n])
	return err
}

// startBlock takes a block when nothing is buffered, of the size that the last
// frame had.
func (r *reader) startBlock() error {
	size := smallBlockBytes
	if r.hint > smallBlockBytes {
		size = min(r.hint, 1<<keptBlockShift)
	}
	b, err := r.takeBlock(size)
	if err != nil {
		return err
	}
	r.block, r.first, r.last, r.limit = b, 0, 0, size
	return nil
}

// readSocket reads what has arrived. It is called by the poller, and returns
// false to be called again when there is more.
func (r *reader) readSocket(fd uintptr) bool {
	if r.block == nil {
		if r.readErr = r.startBlock(); r.readErr != nil {
			return true
		}
	}
	for {
		n, err := unix.Read(int(fd), r.block.data[r.last:r.limit])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if r.first == r.last {
				r.dropBlock()
			}
			return false
		case err != nil:
			r.readErr = err
			return true
		}
		r.last += n
		return true
	}
}

// noteProgress tells the sweeper and the metrics of n bytes that arrived.
func (r *reader) noteProgress(n int) {
	if n == 0 {
		return
	}
	a := &r.conn.activity
	r.received = time.Now()
	a.lastRead.Store(max(int64(r.received.Sub(r.conn.server.started)), 1))
	a.bytesIn.Add(int64(n))
}

// noteFrame tells the sweeper whether part of a frame was read.
func (r *reader) noteFrame(partial bool) {
	a := &r.conn.activity
	if partial {
		a.frameBytes.Store(int64(r.last - r.first))
	}
	switch {
	case partial && !r.inFrame:
		a.frameSince.Store(a.lastRead.Load())
	case !partial && r.inFrame:
		a.frameSince.Store(0)
	}
	r.inFrame = partial
}

// close gives up what the reader holds.
func (r *reader) close() {
	if r.block != nil {
		r.dropBlock()
	}
}

// flush sends the answers that are ready.
func (r *reader) flush() {
	if r.unflushed {
		r.unflushed = false
		r.conn.out.kick()
	}
}

// handle parses the header of a request and calls its handler.
func (r *reader) handle(ctx context.Context, frame []byte) error {
	h, rest, err := readPrefix(frame)
	if err != nil {
		return &closeError{ClosedInvalid, err}
	}
	api, known := r.conn.server.options.APIs(h.key)
	if !known {
		return invalid("request of unknown API key %d, version %d", h.key, h.version)
	}
	supported := h.version >= api.Min && h.version <= api.Max
	if !supported && h.key != apiVersionsKey {
		return invalid("%srequest of API key %d in version %d, while versions %d to %d are spoken here",
			api.title(), h.key, h.version, api.Min, api.Max)
	}
	flexible := h.version >= api.FlexibleFrom
	body, err := h.readRest(rest, flexible)
	if err != nil && supported {
		return invalid("%srequest of API key %d, version %d: %w", api.title(), h.key, h.version, err)
	}
	req := r.conn.spare.take(r.conn)
	if string(h.clientID) != r.clientID {
		r.clientID = string(h.clientID)
	}
	// Conn stays as it is: a late Wake may be reading it.
	req.Key, req.Version, req.CorrelationID = h.key, h.version, h.correlationID
	req.ClientID, req.Body, req.block = r.clientID, body, r.block
	req.Received, req.UnsupportedVersion = r.received, !supported
	req.sizeBytes = lengthBytes + len(frame)
	req.flexible, req.longPoll = flexible && h.key != apiVersionsKey, api.LongPoll
	r.block.retain()
	r.conn.activity.requests.Add(1)
	r.conn.server.noteQueued(req)
	if !api.Quick {
		r.flush()
	}
	if err := r.admit(api, len(frame)); err != nil {
		r.conn.out.finished(req, 0, true)
		return err
	}
	full, err := r.answer(ctx, api, req)
	r.dismiss()
	if full {
		r.flush()
		r.conn.out.wait(r.conn.out.hasSpace)
	}
	return err
}

// answer calls the handler and queues what it returns. It reports whether the
// queue is full now.
func (r *reader) answer(ctx context.Context, api API, req *Request) (full bool, err error) {
	observed := r.conn.server.options.Events.RequestDone != nil
	var start time.Time
	if observed {
		start = time.Now()
		req.queued = start.Sub(req.Received)
	}
	resp := api.Handle(ctx, req)
	if observed {
		req.handled = time.Since(start)
	}
	if c, ok := resp.(closeResponse); ok {
		r.conn.out.uncharge(req)
		req.Release()
		r.conn.server.noteAnswered(req)
		r.flush()
		return false, &closeError{ClosedRequest, errors.New(c.reason)}
	}
	if resp == nil {
		r.conn.out.uncharge(req)
		r.conn.out.finished(req, 0, false)
		return false, nil
	}
	r.unflushed = true
	if d, ok := resp.(detachResponse); ok {
		r.conn.out.push(req, d.Response)
		return false, &detachError{d.take}
	}
	return r.conn.out.push(req, resp), nil
}
