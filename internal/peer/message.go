package peer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// RaftKey is the key of the private request that carries messages of Raft, far from
// all keys of Kafka.
const RaftKey int16 = 31_000

// raftVersion is the only version of it there is.
const raftVersion = 0

// envelope is what one request carries. All integers are big-endian, lengths are
// unsigned varints:
//
//	clusterID(length, bytes)      empty as long as the sender belongs to none
//	from: node(4) directory(16) address(length, bytes)
//	to:   node(4) directory(16)   zeros if the sender does not know it
//	flags(1)                      1: a greeting; 2: of a node with nothing in its log
//	count, then count times: length, raftpb.Message
//
// Naming the receiver's directory keeps a node whose data was wiped from taking what
// is meant for the one that it was.
type envelope struct {
	clusterID string
	from      quorum.Member
	to        quorum.Member // Without an address.
	greeting  bool
	fresh     bool
	messages  []*raftpb.Message
}

// The flags of an envelope.
const (
	flagGreeting = 1 << iota
	flagFresh
)

// maxMessages and maxEntries bound what is allocated for an envelope that was not read yet:
// an entry takes two bytes on the wire, and a hundred decoded.
const (
	maxMessages = 1 << 16
	maxEntries  = 1 << 19
)

// entriesIn counts the entries of a message of Raft before it is decoded. Messages within
// messages are what the library keeps to itself.
func entriesIn(message []byte) (entries int, err error) {
	const entriesField, responsesField = 7, 14 // Of raftpb.Message.
	for len(message) > 0 {
		field, _, n := protowire.ConsumeField(message)
		switch {
		case n < 0:
			return 0, protowire.ParseError(n)
		case field == responsesField:
			return 0, errors.New("it holds other messages")
		case field == entriesField:
			entries++
		}
		message = message[n:]
	}
	return entries, nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendNode(dst []byte, m quorum.Member) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.ID))
	return append(dst, m.Directory[:]...)
}

// appendTo appends the envelope's form on the wire.
func (e *envelope) appendTo(dst []byte) ([]byte, error) {
	dst = appendString(dst, e.clusterID)
	dst = appendString(appendNode(dst, e.from), e.from.Address)
	dst = appendNode(dst, e.to)
	var flags byte
	if e.greeting {
		flags |= flagGreeting
	}
	if e.fresh {
		flags |= flagFresh
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(len(e.messages)))
	for _, m := range e.messages {
		dst = binary.AppendUvarint(dst, uint64(proto.Size(m)))
		var err error
		if dst, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(dst, m); err != nil {
			return nil, fmt.Errorf("encode a message of Raft: %w", err)
		}
	}
	return dst, nil
}

// decoder takes bytes apart. After an error there is nothing left to take.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.rest, d.err = nil, errors.New("cut short")
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.rest, d.err = nil, errors.New("bad length")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) node() (m quorum.Member) {
	if b := d.take(4); b != nil {
		m.ID = kafka.BrokerID(binary.BigEndian.Uint32(b))
	}
	copy(m.Directory[:], d.take(uint64(len(m.Directory))))
	return m
}

// decodeEnvelope is the inverse of appendTo. The messages own their bytes.
func decodeEnvelope(body []byte) (*envelope, error) {
	d := &decoder{rest: body}
	e := &envelope{clusterID: string(d.take(d.uvarint()))}
	e.from = d.node()
	e.from.Address = string(d.take(d.uvarint()))
	e.to = d.node()
	if b := d.take(1); b != nil {
		e.greeting, e.fresh = b[0]&flagGreeting != 0, b[0]&flagFresh != 0
	}
	count := d.uvarint()
	if count > maxMessages {
		return nil, fmt.Errorf("message of Raft: %d at once, the limit is %d", count, maxMessages)
	}
	entries := 0
	for range count {
		b := d.take(d.uvarint())
		if d.err != nil {
			break
		}
		n, err := entriesIn(b)
		if entries += n; err == nil && entries > maxEntries {
			err = fmt.Errorf("more than %d entries at once", maxEntries)
		}
		if err != nil {
			return nil, fmt.Errorf("message of Raft: %w", err)
		}
		m := &raftpb.Message{}
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, fmt.Errorf("message of Raft: %w", err)
		}
		e.messages = append(e.messages, m)
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.rest))
	}
	if d.err != nil {
		return nil, fmt.Errorf("message of Raft: %w", d.err)
	}
	return e, nil
}

// raftRequest carries an envelope; it implements kmsg.Request.
type raftRequest struct {
	version int16
	body    []byte
}

// Key implements kmsg.Request.
func (*raftRequest) Key() int16 { return RaftKey }

// MaxVersion implements kmsg.Request.
func (*raftRequest) MaxVersion() int16 { return raftVersion }

// SetVersion implements kmsg.Request.
func (r *raftRequest) SetVersion(v int16) { r.version = v }

// GetVersion implements kmsg.Request.
func (r *raftRequest) GetVersion() int16 { return r.version }

// IsFlexible implements kmsg.Request.
func (*raftRequest) IsFlexible() bool { return false }

// AppendTo implements kmsg.Request.
func (r *raftRequest) AppendTo(dst []byte) []byte { return append(dst, r.body...) }

// ReadFrom implements kmsg.Request.
func (r *raftRequest) ReadFrom(src []byte) error {
	r.body = src
	return nil
}

// ResponseKind implements kmsg.Request.
func (r *raftRequest) ResponseKind() kmsg.Response { return &raftResponse{version: r.version} }

// raftResponse says whether the messages were taken; it implements kmsg.Response:
// code(2), leader(4), then why not and the leader's address, as strings with two bytes
// of length.
type raftResponse struct {
	version int16
	code    kafka.Code
	reason  string
	// leader is whom to greet, with its address: kafka.NoBroker if that is not known
	// or nothing was greeted. A refusal may name it too.
	leader  kafka.BrokerID
	address string
}

// Key implements kmsg.Response.
func (*raftResponse) Key() int16 { return RaftKey }

// MaxVersion implements kmsg.Response.
func (*raftResponse) MaxVersion() int16 { return raftVersion }

// SetVersion implements kmsg.Response.
func (r *raftResponse) SetVersion(v int16) { r.version = v }

// GetVersion implements kmsg.Response.
func (r *raftResponse) GetVersion() int16 { return r.version }

// IsFlexible implements kmsg.Response.
func (*raftResponse) IsFlexible() bool { return false }

// RequestKind implements kmsg.Response.
func (r *raftResponse) RequestKind() kmsg.Request { return &raftRequest{version: r.version} }

// AppendTo implements kmsg.Response.
func (r *raftResponse) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.code))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.leader))
	for _, s := range [...]string{r.reason, r.address} {
		s = s[:min(len(s), 1024)]
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
	}
	return dst
}

// ReadFrom implements kmsg.Response.
func (r *raftResponse) ReadFrom(src []byte) error {
	d := decoder{rest: src}
	if b := d.take(6); b != nil {
		r.code, r.leader = kafka.Code(binary.BigEndian.Uint16(b)), kafka.BrokerID(binary.BigEndian.Uint32(b[2:]))
	}
	for _, s := range [...]*string{&r.reason, &r.address} {
		if b := d.take(2); b != nil {
			*s = string(d.take(uint64(binary.BigEndian.Uint16(b))))
		}
	}
	if d.err != nil || len(d.rest) > 0 {
		return errors.New("answer to messages of Raft has the wrong length")
	}
	return nil
}
