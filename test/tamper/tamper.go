// Package tamper is a client's way to brokers on which single requests are held up, or
// their answers lost, as no network does by chance often enough.
//
// A request that is picked never goes the way of the others. What picked it may deliver
// it, at once or much later, over a connection of its own; the client's connection
// breaks when the function that was given the request returns, so that the client tries
// again. Only connections without TLS can be looked into.
package tamper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long a broker may take for an answer.
const patience = 20 * time.Second

// Way is how a client comes to brokers: Dial is its dialer. The zero value lets
// everything pass.
type Way struct {
	mu    sync.Mutex
	picks map[int16][]func(*Request) // By key.
}

// Pick has the next request of a kind, which nothing picks yet, be given to a function.
// The client waits for nothing but its own time-outs meanwhile.
func (w *Way) Pick(key kmsg.Key, fn func(*Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.picks == nil {
		w.picks = map[int16][]func(*Request){}
	}
	w.picks[key.Int16()] = append(w.picks[key.Int16()], fn)
}

func (w *Way) take(key int16) func(*Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fns := w.picks[key]
	if len(fns) == 0 {
		return nil
	}
	w.picks[key] = fns[1:]
	return fns[0]
}

// Dial connects.
func (w *Way) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, way: w, address: address}, nil
}

// conn is a client's connection.
type conn struct {
	net.Conn
	way     *Way
	address string
	partial []byte // Of a request.
}

// The fields of a request that are looked at.
const (
	sizeBytes     = 4
	keyAt         = 4
	versionAt     = 6
	correlationAt = 8
	headBytes     = 12
)

// frame cuts a whole request off; nil if there is none yet.
func (c *conn) frame() []byte {
	if len(c.partial) < headBytes {
		return nil
	}
	n := sizeBytes + int(binary.BigEndian.Uint32(c.partial))
	if len(c.partial) < n {
		return nil
	}
	f := c.partial[:n:n]
	c.partial = c.partial[n:]
	return f
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.partial = append(c.partial, b...)
	for f := c.frame(); f != nil; f = c.frame() {
		fn := c.way.take(int16(binary.BigEndian.Uint16(f[keyAt:])))
		if fn == nil {
			if _, err := c.Conn.Write(f); err != nil {
				return 0, err
			}
			continue
		}
		fn(&Request{address: c.address, frame: f})
		_ = c.Close()
		return 0, errors.New("the connection broke")
	}
	return len(b), nil
}

// Request is a request that was picked.
type Request struct {
	address string
	frame   []byte
}

// Deliver sends the request to the broker it was for, and reads the answer.
func (r *Request) Deliver(ctx context.Context, answer kmsg.Response) error {
	if err := r.deliver(ctx, answer); err != nil {
		return fmt.Errorf("deliver %s to %s: %w", kmsg.NameForKey(answer.Key()), r.address, err)
	}
	return nil
}

func (r *Request) deliver(ctx context.Context, answer kmsg.Response) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	if _, err := c.Write(r.frame); err != nil {
		return err
	}
	var head [2 * sizeBytes]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-sizeBytes)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(head[sizeBytes:]); got != binary.BigEndian.Uint32(r.frame[correlationAt:]) {
		return fmt.Errorf("the answer is that of request %d", got)
	}
	answer.SetVersion(int16(binary.BigEndian.Uint16(r.frame[versionAt:])))
	if answer.IsFlexible() {
		body = body[1:] // No tags in the header.
	}
	return answer.ReadFrom(body)
}
