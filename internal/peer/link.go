package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

const (
	// linkBufferBytes is what each direction gathers; longer frames pass by.
	linkBufferBytes = 16 << 10
	// writeTimeout is how long the other side may take nothing of a frame.
	writeTimeout = 30 * time.Second
	// Of a frame: its length, and the correlation id of an answer.
	lengthBytes      = 4
	correlationBytes = 4
	// correlationAt is where a request's frame has its id.
	correlationAt = 8
	// What a listener with TLS answers with, who is spoken to without.
	tlsAlert, tlsMajor = 21, 3
)

// link is one connection while it lasts: a writer, a reader, and the requests that
// wait for an answer, in the order in which they were written.
type link struct {
	conn    *Conn
	nc      net.Conn
	address string
	// versions are what the other side knows; set before anybody else uses the
	// link, which begins with asking for it.
	versions map[int16][2]int16

	// out has room for all requests that a Conn lets in, so sends never block.
	out  chan *call
	dead chan struct{}

	mu      sync.Mutex
	unsent  int // Invariant: the length of out, or one more.
	pending []*call
	err     error // Why it is dead.
	// lastSign is when an answer came, or a request that waits for no other.
	lastSign time.Time
}

// call is a request without an answer.
type call struct {
	req   kmsg.Request
	frame []byte // With room for the correlation id.
	slot  bool   // It holds one of the Conn's slots.
	id    int32

	done   chan struct{} // Closed when one of these is set:
	answer []byte        // The answer's frame, from its header on.
	err    error
}

func newLink(c *Conn, nc net.Conn, address string) *link {
	return &link{
		conn: c, nc: nc, address: address,
		out: make(chan *call, c.opt.MaxPending+1), dead: make(chan struct{}),
		lastSign: time.Now(),
	}
}

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// greet asks for the versions that the other side knows. Version 0 is known to all.
func (l *link) greet(ctx context.Context) error {
	waiting := l.push(kmsg.NewPtrApiVersionsRequest(), false)
	if waiting == nil {
		return l.why()
	}
	resp, err := l.await(ctx, waiting)
	if err != nil {
		if ctx.Err() != nil {
			return &DownError{Address: l.address, Cause: Unreachable, Err: err}
		}
		return err
	}
	versions, ok := resp.(*kmsg.ApiVersionsResponse)
	if !ok || versions.ErrorCode != 0 {
		return &DownError{
			Address: l.address, Cause: Garbled,
			Err: fmt.Errorf("ApiVersions was answered with %s", kafka.Code(versions.ErrorCode)),
		}
	}
	l.versions = make(map[int16][2]int16, len(versions.ApiKeys))
	for _, k := range versions.ApiKeys {
		l.versions[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return nil
}

// enqueue takes a request over together with its slot. Nil says that the link is
// dead and has taken nothing.
func (l *link) enqueue(req kmsg.Request) (*call, error) {
	known, ok := l.versions[req.Key()]
	version := min(req.MaxVersion(), known[1])
	if !ok || version < known[0] {
		return nil, &UnsupportedError{Address: l.address, Key: req.Key()}
	}
	req.SetVersion(version)
	return l.push(req, true), nil
}

func (l *link) push(req kmsg.Request, slot bool) *call {
	waiting := &call{
		req: req, slot: slot, done: make(chan struct{}),
		frame: l.conn.formatter.AppendRequest(nil, req, 0),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil
	}
	if l.unsent+len(l.pending) == 0 {
		l.lastSign = time.Now()
	}
	l.unsent++
	l.out <- waiting
	return waiting
}

// await waits for the answer.
func (l *link) await(ctx context.Context, waiting *call) (kmsg.Response, error) {
	select {
	case <-waiting.done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.endIfSilent()
		}
		return nil, fmt.Errorf("request %d to broker at %s: %w", waiting.req.Key(), l.address, ctx.Err())
	}
	if waiting.err != nil {
		return nil, waiting.err
	}
	resp, err := waiting.decode()
	if err != nil {
		err = &DownError{Address: l.address, Cause: Garbled, Err: err}
		l.fail(err)
		return nil, err
	}
	return resp, nil
}

// endIfSilent ends a link on which nothing came for long although something is due:
// what is asked next on it would wait in vain too.
func (l *link) endIfSilent() {
	l.mu.Lock()
	silent := time.Since(l.lastSign)
	l.mu.Unlock()
	if silent >= l.conn.opt.DialTimeout {
		l.fail(&DownError{
			Address: l.address, Cause: Silent,
			Err: fmt.Errorf("no answer for %s", silent.Round(time.Millisecond)),
		})
	}
}

// decode reads the answer.
func (c *call) decode() (kmsg.Response, error) {
	resp := c.req.ResponseKind()
	resp.SetVersion(c.req.GetVersion())
	body := c.answer[correlationBytes:]
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("answer to request %d: %w", c.req.Key(), err)
	}
	return resp, nil
}

// skipTags skips the tagged fields of a flexible header.
func skipTags(b []byte) ([]byte, error) {
	d := decoder{rest: b}
	for count := d.uvarint(); count > 0 && d.err == nil; count-- {
		d.uvarint()
		d.take(d.uvarint())
	}
	return d.rest, d.err
}

// write sends what is asked for, as much at once as there is. It ends with the
// link, or ends it when nobody used it for long.
func (l *link) write() {
	w := bufio.NewWriterSize(l.nc, linkBufferBytes)
	idle := time.NewTimer(l.conn.opt.IdleTimeout)
	defer idle.Stop()
	var next int32
	for {
		select {
		case waiting := <-l.out:
			next++
			if err := l.writeOne(w, waiting, next); err != nil {
				l.fail(l.broken(err))
				return
			}
			idle.Reset(l.conn.opt.IdleTimeout)
		case <-idle.C:
			unused := &DownError{Address: l.address, Cause: Ended, Err: errors.New("nobody used it")}
			if l.end(unused, true) {
				return
			}
			idle.Reset(l.conn.opt.IdleTimeout)
		case <-l.dead:
			return
		}
	}
}

func (l *link) writeOne(w *bufio.Writer, waiting *call, id int32) error {
	binary.BigEndian.PutUint32(waiting.frame[correlationAt:], uint32(id))
	waiting.id = id
	l.mu.Lock()
	l.unsent--
	if l.err != nil {
		err := l.err
		l.mu.Unlock()
		l.finish(waiting, nil, err)
		return err
	}
	l.pending = append(l.pending, waiting)
	l.mu.Unlock()
	frame := waiting.frame
	waiting.frame = nil
	if err := l.nc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(frame); err != nil {
		return err
	}
	if len(l.out) > 0 {
		return nil
	}
	return w.Flush()
}

// read hands answers to those who wait for them. It ends with the link.
func (l *link) read() {
	r := bufio.NewReaderSize(l.nc, linkBufferBytes)
	for {
		answer, err := l.readFrame(r)
		if err == nil {
			err = l.deliver(answer)
		}
		if err != nil {
			l.fail(l.broken(err))
			return
		}
	}
}

func (l *link) readFrame(r *bufio.Reader) ([]byte, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	if length[0] == tlsAlert && length[1] == tlsMajor && l.conn.opt.TLS == nil {
		return nil, &DownError{Address: l.address, Cause: Garbled, Err: errors.New(
			"it speaks TLS and this broker does not: give all brokers --cluster-tls-cert, or none")}
	}
	n := int64(binary.BigEndian.Uint32(length[:]))
	if n < correlationBytes || n > int64(l.conn.opt.MaxResponseBytes) {
		return nil, &DownError{
			Address: l.address, Cause: Garbled,
			Err: fmt.Errorf("an answer of %d bytes, the limit is %d", n, l.conn.opt.MaxResponseBytes),
		}
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(r, answer)
	return answer, err
}

// deliver gives an answer to the request that has waited longest.
func (l *link) deliver(answer []byte) error {
	id := int32(binary.BigEndian.Uint32(answer))
	l.mu.Lock()
	if len(l.pending) == 0 || l.pending[0].id != id {
		l.mu.Unlock()
		return &DownError{
			Address: l.address, Cause: Garbled,
			Err: fmt.Errorf("answer %d is to nothing that waits first", id),
		}
	}
	waiting := l.pending[0]
	l.pending[0] = nil
	l.pending = l.pending[1:]
	l.lastSign = time.Now()
	l.mu.Unlock()
	l.finish(waiting, answer, nil)
	return nil
}

func (l *link) finish(waiting *call, answer []byte, err error) {
	waiting.answer, waiting.err = answer, err
	close(waiting.done)
	if waiting.slot {
		<-l.conn.slots
	}
}

// broken says what an error of the connection means.
func (l *link) broken(err error) error {
	var down *DownError
	if errors.As(err, &down) {
		return down
	}
	cause := Closed
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		cause = Silent
	case l.conn.opt.TLS != nil && strings.Contains(err.Error(), "remote error: tls: "):
		// With TLS 1.3 the side that dials learns so after its handshake.
		cause = Rejected
	}
	return &DownError{Address: l.address, Cause: cause, Err: err}
}

func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// fail ends the link for a reason; the first counts. All that wait fail with it.
func (l *link) fail(err error) { l.end(err, false) }

// end is fail, or leaves a link alone on which something waits. A request that
// comes later finds the link dead, and its Conn gets it another.
func (l *link) end(err error, onlyUnused bool) bool {
	l.mu.Lock()
	if l.err != nil || onlyUnused && l.unsent+len(l.pending) > 0 {
		l.mu.Unlock()
		return false
	}
	l.err = err
	pending := l.pending
	l.pending = nil
	close(l.dead)
	l.mu.Unlock()
	_ = l.nc.Close() // The reason is known already.
	// First the Conn forgets the link: who fails and asks again gets another.
	l.conn.forget(l, err)
	for _, waiting := range pending {
		l.finish(waiting, nil, err)
	}
	for {
		select {
		case waiting := <-l.out:
			l.finish(waiting, nil, err)
		default:
			return true
		}
	}
}
