package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

// TunnelKey is the key of the private request after whose answer a connection to a
// cluster listener carries something else than requests.
const TunnelKey int16 = 31_001

// tunnelVersion is the only version of it there is.
const tunnelVersion = 0

// maxTunnelAnswer bounds the answer to it.
const maxTunnelAnswer = 4 << 10

// tunnelRequest asks for a tunnel; it implements kmsg.Request:
//
//	clusterID(length, bytes) from: node(4) to: node(4)
//
// Naming both sides keeps a request from whoever listens at the address by now.
type tunnelRequest struct {
	version   int16
	clusterID string
	from, to  kafka.BrokerID
}

// Key implements kmsg.Request.
func (*tunnelRequest) Key() int16 { return TunnelKey }

// MaxVersion implements kmsg.Request.
func (*tunnelRequest) MaxVersion() int16 { return tunnelVersion }

// SetVersion implements kmsg.Request.
func (r *tunnelRequest) SetVersion(v int16) { r.version = v }

// GetVersion implements kmsg.Request.
func (r *tunnelRequest) GetVersion() int16 { return r.version }

// IsFlexible implements kmsg.Request.
func (*tunnelRequest) IsFlexible() bool { return false }

// AppendTo implements kmsg.Request.
func (r *tunnelRequest) AppendTo(dst []byte) []byte {
	dst = appendString(dst, r.clusterID)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.from))
	return binary.BigEndian.AppendUint32(dst, uint32(r.to))
}

// ReadFrom implements kmsg.Request.
func (r *tunnelRequest) ReadFrom(src []byte) error {
	d := &decoder{rest: src}
	r.clusterID = string(d.take(d.uvarint()))
	for _, id := range [...]*kafka.BrokerID{&r.from, &r.to} {
		if b := d.take(4); b != nil {
			*id = kafka.BrokerID(binary.BigEndian.Uint32(b))
		}
	}
	if d.err != nil || len(d.rest) > 0 {
		return errors.New("request for a tunnel has the wrong length")
	}
	return nil
}

// ResponseKind implements kmsg.Request. The answer is that to messages of Raft,
// without a leader.
func (r *tunnelRequest) ResponseKind() kmsg.Response { return &raftResponse{version: r.version} }

// Tunnel opens a connection of its own to a broker's cluster listener, over which
// goes what both sides agree on, behind the same address and the same TLS as all
// else between brokers. self and clusterID say who asks. A *DownError or a
// *RefusedError says that there is none.
func (p *Pool) Tunnel(ctx context.Context, self, to kafka.BrokerID, clusterID string) (net.Conn, error) {
	c := Dial(func() (string, bool) { return p.address(to) }, p.opt)
	ctx, cancel := context.WithTimeout(ctx, c.opt.DialTimeout)
	defer cancel()
	nc, address, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	// A context that is canceled ends the exchange as its deadline does.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err = c.knock(nc, &tunnelRequest{clusterID: clusterID, from: self, to: to})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return nil, errors.Join(err, nc.Close())
	case err != nil:
		_ = nc.Close() // The reason is known already.
		return nil, &DownError{Address: address, Cause: Unreachable, Err: err}
	}
	return nc, nc.SetDeadline(time.Time{})
}

// knock asks for a tunnel and reads the answer, and not a byte more.
func (c *Conn) knock(nc net.Conn, req *tunnelRequest) error {
	if _, err := nc.Write(c.formatter.AppendRequest(nil, req, 1)); err != nil {
		return err
	}
	var head [lengthBytes + correlationBytes]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < correlationBytes || n > maxTunnelAnswer {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	body := make([]byte, n-correlationBytes)
	if _, err := io.ReadFull(nc, body); err != nil {
		return err
	}
	var answer raftResponse
	if err := answer.ReadFrom(body); err != nil {
		return err
	}
	if answer.code != kafka.ErrNone {
		return &RefusedError{Code: answer.code, Reason: answer.reason}
	}
	return nil
}

// TunnelAPI is the row of the cluster listener's table that opens tunnels. take gets
// each connection; it returns why it takes none now, or nil.
func TunnelAPI(self kafka.BrokerID, clusterID func() string, open func() error, take func(net.Conn)) wire.API {
	refuse := func(code kafka.Code, format string, args ...any) wire.Response {
		return answered{&raftResponse{code: code, reason: fmt.Sprintf(format, args...), leader: kafka.NoBroker}}
	}
	return wire.API{
		Name: "Tunnel", Key: TunnelKey, Min: tunnelVersion, Max: tunnelVersion, FlexibleFrom: tunnelVersion + 1,
		Small: true,
		Handle: func(_ context.Context, r *wire.Request) wire.Response {
			var req tunnelRequest
			if err := wire.Decode(func() error { return req.ReadFrom(r.Body) }); err != nil {
				return wire.Close(err.Error())
			}
			if own := clusterID(); req.clusterID != own {
				return refuse(kafka.ErrInconsistentClusterID, "broker %d belongs to cluster %q, not to %q", self, own, req.clusterID)
			}
			if req.to != self {
				return refuse(kafka.ErrBrokerIDNotRegistered, "this is broker %d, not %d", self, req.to)
			}
			if err := open(); err != nil {
				return refuse(kafka.ErrBrokerNotAvailable, "%v", err)
			}
			return wire.Detach(answered{&raftResponse{leader: kafka.NoBroker}}, take)
		},
	}
}
