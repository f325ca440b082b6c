package strange

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Visitor sends requests to one listener.
type Visitor struct {
	Addr  string
	World *World
	Rand  *rand.Rand

	conn net.Conn
	next int32
	rows []kmsg.ApiVersionsResponseApiKey
}

// patience is how long an answer may take that waits for nothing, on a machine that has
// much to do.
const patience = 20 * time.Second

// Visit sends requests until ctx ends, and yields what is wrong with the answers.
func (v *Visitor) Visit(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		defer v.leave()
		for ctx.Err() == nil {
			err := v.once(ctx)
			if err == nil || ctx.Err() != nil {
				continue
			}
			if !yield(err) {
				return
			}
			select { // A broker that is gone is not found gone a thousand times a second.
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

func (v *Visitor) leave() {
	if v.conn != nil {
		_ = v.conn.Close()
		v.conn = nil
	}
}

// once sends some requests on one connection and reads their answers.
func (v *Visitor) once(ctx context.Context) error {
	if v.conn == nil {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", v.Addr)
		if err != nil {
			return err
		}
		v.conn = conn
		if v.rows == nil {
			if err := v.ask(); err != nil {
				return err
			}
		}
	}
	m := newMaker(v.Rand, v.World)
	var reqs []kmsg.Request
	var frames []byte
	first := v.next + 1
	for range 1 + v.Rand.IntN(2)*v.Rand.IntN(5) {
		row := v.rows[v.Rand.IntN(len(v.rows))]
		if kmsg.RequestForKey(row.ApiKey) == nil {
			continue
		}
		req := m.request(row.ApiKey, row.MinVersion+int16(v.Rand.IntN(int(row.MaxVersion-row.MinVersion)+1)))
		v.next++
		frames = append(frames, kmsg.NewRequestFormatter(kmsg.FormatterClientID("strange")).AppendRequest(nil, req, v.next)...)
		if p, ok := req.(*kmsg.ProduceRequest); !ok || p.Acks != 0 {
			reqs = append(reqs, req)
		} else {
			reqs = append(reqs, nil)
		}
	}
	if _, err := v.conn.Write(frames); err != nil {
		v.World.noteClosed()
		v.leave()
		return nil
	}
	if v.Rand.IntN(200) == 0 { // Gone without a word.
		v.leave()
		return nil
	}
	for i, req := range reqs {
		if req == nil {
			continue
		}
		if err := v.receive(first+int32(i), req); err != nil {
			v.leave()
			return fmt.Errorf("%w; after it %v", err, names(reqs[i+1:]))
		}
		if v.conn == nil {
			return nil
		}
	}
	return nil
}

// names tells of what kind requests are.
func names(reqs []kmsg.Request) (out []string) {
	for _, req := range reqs {
		if req != nil {
			out = append(out, fmt.Sprintf("%s version %d", kmsg.NameForKey(req.Key()), req.GetVersion()))
		} else {
			out = append(out, "Produce without an answer")
		}
	}
	return out
}

// ask asks what the listener offers.
func (v *Visitor) ask() error {
	req := kmsg.NewPtrApiVersionsRequest()
	v.next++
	if _, err := v.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, v.next)); err != nil {
		return err
	}
	_, body, err := v.frame()
	if err != nil {
		return err
	}
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if err := resp.ReadFrom(body); err != nil {
		return err
	}
	v.rows = resp.ApiKeys
	return nil
}

// frame reads an answer.
func (v *Visitor) frame() (id int32, body []byte, err error) {
	if err := v.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(v.conn, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err = io.ReadFull(v.conn, body)
	return int32(binary.BigEndian.Uint32(head[4:])), body, err
}

// receive reads the answer to a request. That the connection is closed instead is an
// answer too; that nothing comes is none, but for requests that may wait for others.
func (v *Visitor) receive(id int32, req kmsg.Request) error {
	start := time.Now()
	got, body, err := v.frame()
	v.World.noteTime(req.Key(), time.Since(start))
	name := fmt.Sprintf("%s version %d", kmsg.NameForKey(req.Key()), req.GetVersion())
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && mayWait(req):
		v.World.noteSilent(req.Key())
		v.leave()
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: no answer to %+v", name, req)
	case err != nil:
		v.World.noteClosed()
		v.leave()
		return nil
	case got != id:
		return fmt.Errorf("%s: answer %d instead of %d", name, got, id)
	}
	resp := req.ResponseKind()
	if err := decode(resp, body); err != nil {
		return fmt.Errorf("%s: %w, to %+v", name, err, req)
	}
	v.World.learn(resp)
	return nil
}

// mayWait says that a request may ask to wait for as long as it likes.
func mayWait(req kmsg.Request) bool {
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		return r.MaxWaitMillis > 1000
	case *kmsg.ProduceRequest:
		return r.TimeoutMillis > 1000
	case *kmsg.JoinGroupRequest, *kmsg.SyncGroupRequest:
		return true
	}
	return false
}

// decode reads an answer to its end.
func decode(resp kmsg.Response, body []byte) error {
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return errors.New("the header of the answer has no empty section of tags")
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("decode % x: %w", body, err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return fmt.Errorf("received % x which decodes to % x", body, again)
	}
	return nil
}
