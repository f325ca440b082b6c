package api_test

import (
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// exchange sends one frame again and again and reads the answers, without
// allocating anything itself.
type exchange struct {
	c     *client
	frame []byte
	in    []byte
}

func (c *client) exchange(req kmsg.Request) *exchange {
	return &exchange{c: c, frame: frameOf(req, 1), in: make([]byte, 64<<10)}
}

func (x *exchange) once() {
	if _, err := x.c.conn.Write(x.frame); err != nil {
		x.c.t.Fatal(err)
	}
	if _, err := io.ReadFull(x.c.conn, x.in[:4]); err != nil {
		x.c.t.Fatal(err)
	}
	if _, err := io.ReadFull(x.c.conn, x.in[:binary.BigEndian.Uint32(x.in)]); err != nil {
		x.c.t.Fatal(err)
	}
}

// hotPath are the requests that a broker answers all day, with how many
// allocations each may take. The network in memory takes 10 of them, its disk 1 or
// 2; there the path of a produce takes none.
func hotPath(t testing.TB) []struct {
	name string
	x    *exchange
	most float64
} {
	w := startWorld(t)
	w.createTopic("t", 1)
	w.must(w.ensureOffsetsTopic(t.Context()))
	value := strings.Repeat("v", 1024)
	w.fill("t", 0, value)
	produce := produceOf(9, "t", 0, batchOf(value))
	produce.Acks = 1
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxWaitMillis, fetch.MaxBytes, fetch.SessionEpoch = 12, 0, 2000, -1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = "t"
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = 2000, -1
	ft.Partitions = append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	return []struct {
		name string
		x    *exchange
		most float64
	}{
		{"produce", w.connect().exchange(produce), 13},
		{"fetch", w.connect().exchange(fetch), 21},
		{"heartbeat", w.connect().exchange(heartbeatOf(w)), 19},
		{"commit", w.connect().exchange(commitOf(8, 1)), 25},
	}
}

// heartbeatOf makes a group of one member and returns its heartbeat.
func heartbeatOf(w *world) *kmsg.HeartbeatRequest {
	c := w.connect()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 60_000, 60_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0}}}
	joined := c.ask(join).(*kmsg.JoinGroupResponse)
	if code := kafka.Code(joined.ErrorCode); code != kafka.ErrNone {
		w.t.Fatalf("join: %s", code)
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "g", joined.MemberID, joined.Generation
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte{0, 0}}}
	if code := kafka.Code(c.ask(sync).(*kmsg.SyncGroupResponse).ErrorCode); code != kafka.ErrNone {
		w.t.Fatalf("sync: %s", code)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, "g", joined.MemberID, joined.Generation
	return beat
}

// BenchmarkRequest counts what one request takes, with its allocations.
func BenchmarkRequest(b *testing.B) {
	for _, h := range hotPath(b) {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.x.once()
			}
		})
	}
}

// TestAllocations: requests of the hot path do not allocate more than they did.
func TestAllocations(t *testing.T) {
	for _, h := range hotPath(t) {
		t.Run(h.name, func(t *testing.T) {
			got := testing.AllocsPerRun(300, h.x.once)
			t.Logf("%.1f allocations", got)
			if got > h.most*raceFactor {
				t.Errorf("%.1f allocations a request, at most %.0f are allowed", got, h.most)
			}
		})
	}
}
