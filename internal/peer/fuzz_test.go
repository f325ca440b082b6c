package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// listening is a quorum that only listens.
type listening struct{ Quorum }

func (listening) Receive(context.Context, quorum.Member, *raftpb.Message) error { return nil }
func (listening) Greeted(context.Context, quorum.Member, bool) error            { return nil }
func (listening) Member(kafka.BrokerID) (m quorum.Member, known bool)           { return m, false }

// FuzzRaftRequest gives arbitrary bytes to the row of the table that takes messages of
// Raft: it takes or refuses them, without a panic.
func FuzzRaftRequest(f *testing.F) {
	e := sampleEnvelope()
	f.Add(encode(f, e))
	e.clusterID, e.to = "", quorum.Member{ID: 1}
	f.Add(encode(f, e))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := NewRaft(RaftOptions{Self: quorum.Member{ID: 1, Directory: [16]byte{15: 9}}, ClusterID: "a cluster"})
		r.Attach(listening{})
		_ = r.Receive(t.Context(), body)
	})
}

// FuzzAnswer reads arbitrary bytes as what another broker answers: no panic, and no
// more memory than the bytes that came.
func FuzzAnswer(f *testing.F) {
	frame := func(key int16, resp kmsg.Response) []byte {
		body := binary.BigEndian.AppendUint32(nil, 1)
		if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
			body = append(body, 0)
		}
		body = resp.AppendTo(body)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for _, key := range answerKeys() {
		req := requestFor(key)
		req.SetVersion(req.MaxVersion())
		resp := req.ResponseKind()
		f.Add(key, req.MaxVersion(), frame(key, resp))
	}
	f.Fuzz(func(t *testing.T, key, version int16, data []byte) {
		req := requestFor(key)
		if req == nil || version < 0 || version > req.MaxVersion() {
			return
		}
		req.SetVersion(version)
		conn := Dial(func() (string, bool) { return "", false }, Options{MaxResponseBytes: 1 << 20})
		l := newLink(conn, nil, "a broker")
		answer, err := l.readFrame(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return
		}
		waiting := &call{req: req, done: make(chan struct{})}
		l.pending = []*call{waiting}
		waiting.id = int32(binary.BigEndian.Uint32(answer))
		if err := l.deliver(answer); err != nil {
			t.Fatal(err)
		}
		_, _ = waiting.decode()
	})
}

// answerKeys are the requests that brokers ask one another.
func answerKeys() []int16 {
	keys := []int16{RaftKey}
	for _, k := range []kmsg.Key{
		kmsg.ApiVersions, kmsg.Fetch, kmsg.OffsetForLeaderEpoch, kmsg.BrokerRegistration, kmsg.BrokerHeartbeat,
		kmsg.AlterPartition, kmsg.AllocateProducerIDs, kmsg.CreateTopics, kmsg.DescribeQuorum,
	} {
		keys = append(keys, k.Int16())
	}
	return keys
}

func requestFor(key int16) kmsg.Request {
	if key == RaftKey {
		return &raftRequest{}
	}
	return kmsg.RequestForKey(key)
}

// FuzzRaftResponse reads arbitrary bytes as an answer to messages of Raft.
func FuzzRaftResponse(f *testing.F) {
	f.Add((&raftResponse{code: kafka.ErrInvalidVoterKey, reason: "because", leader: 3, address: "h:1"}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r raftResponse
		if r.ReadFrom(data) != nil {
			return
		}
		var again raftResponse
		if err := again.ReadFrom(r.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
