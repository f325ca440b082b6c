package api_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

func cut(pair string) (string, string) {
	key, value, _ := strings.Cut(pair, "=")
	return key, value
}

// client is one connection that speaks in raw frames.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
	sent map[int32]kmsg.Request
}

// connect opens a connection to the broker.
func (w *world) connect() *client { return w.connectFrom("10.0.0.1") }

// connectFrom opens a connection from a host of its own.
func (w *world) connectFrom(ip string) *client {
	w.t.Helper()
	conn, err := w.memory.Host(ip).Dial(w.t.Context(), w.addr)
	w.must(err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: w.t, conn: conn, next: 100, sent: map[int32]kmsg.Request{}}
}

// frameOf encodes a request with its length in front.
func frameOf(req kmsg.Request, correlationID int32) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))
	return f.AppendRequest(nil, req, correlationID)
}

// send writes a request and returns its correlation id.
func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.next++
	c.sent[c.next] = req
	if _, err := c.conn.Write(frameOf(req, c.next)); err != nil {
		c.t.Fatalf("send %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return c.next
}

// sendAll writes several requests at once and returns the first's correlation
// id; the others follow it.
func (c *client) sendAll(reqs ...kmsg.Request) int32 {
	c.t.Helper()
	var frames []byte
	for _, req := range reqs {
		c.next++
		c.sent[c.next] = req
		frames = append(frames, frameOf(req, c.next)...)
	}
	if _, err := c.conn.Write(frames); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	return c.next - int32(len(reqs)) + 1
}

// receiveFrame reads an answer: correlation id and what follows it.
func (c *client) receiveFrame() (int32, []byte, error) { return c.receiveWithin(time.Minute) }

// receiveWithin is receiveFrame with a limit of time.
func (c *client) receiveWithin(limit time.Duration) (int32, []byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return 0, nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return 0, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err := io.ReadFull(c.conn, body)
	return int32(binary.BigEndian.Uint32(head[4:])), body, err
}

// receive reads the next answer, which must be that of the request id, and
// decodes it.
func (c *client) receive(id int32) kmsg.Response {
	c.t.Helper()
	got, body, err := c.receiveFrame()
	if err != nil {
		c.t.Fatalf("no answer to %s: %v", kmsg.NameForKey(c.sent[id].Key()), err)
	}
	if got != id {
		c.t.Fatalf("answer to %d, want %d", got, id)
	}
	req := c.sent[id]
	delete(c.sent, id)
	resp := req.ResponseKind()
	if err := decodeExactly(resp, body); err != nil {
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

// decodeExactly decodes an answer behind its correlation id. Encoded again it
// must be the same bytes: then none was left over and none misread.
func decodeExactly(resp kmsg.Response, body []byte) error {
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return errors.New("the response header has no empty tag section")
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("decode % x: %w", body, err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return fmt.Errorf("received % x\nwhich decodes to   % x", body, again)
	}
	return nil
}

// ask sends a request and returns its answer.
func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.receive(c.send(req))
}

// expectClosed reads until the end, before which nothing may come.
func (c *client) expectClosed() {
	c.t.Helper()
	b, err := io.ReadAll(c.conn)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Logf("closed with %v", err)
	}
	if len(b) > 0 {
		c.t.Fatalf("% x instead of the end of the connection", b)
	}
}

// codesIn lists every error code in an answer, in order.
func codesIn(resp any) []kafka.Code {
	var out []kafka.Code
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Name == "ErrorCode" {
					out = append(out, kafka.Code(v.Field(i).Int()))
				} else if f.IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(resp))
	return out
}

// text returns what a nullable string says.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
