package strandline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is who was given which record in which generation.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	// owners are the members that were given records of a partition in a
	// generation: there must not be two.
	owners map[[2]int32]string
	// seen are the generations in which each record was given.
	seen map[[2]int64][]int32
}

// note takes down that a member was given a record.
func (l *ledger) note(member string, generation, partition int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner, ok := l.owners[[2]int32{partition, generation}]; ok && owner != member {
		l.t.Errorf("partition %d in generation %d: records for %s and for %s", partition, generation, owner, member)
	}
	l.owners[[2]int32{partition, generation}] = member
	at := [2]int64{int64(partition), offset}
	for _, g := range l.seen[at] {
		if g == generation {
			l.t.Errorf("record %d of partition %d was given twice in generation %d", offset, partition, generation)
		}
	}
	l.seen[at] = append(l.seen[at], generation)
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// consumeByKafka is a member with a Kafka client until ctx ends: it takes records,
// commits, and lets the group rebalance, in turn.
func (l *ledger) consumeByKafka(ctx context.Context, addr string, balancer kgo.GroupBalancer) {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(addr), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer cl.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fs := cl.PollRecords(ctx, 50)
		member, generation := cl.GroupMetadata()
		fs.EachRecord(func(r *kgo.Record) { l.note(member, generation, r.Partition, r.Offset) })
		if n := fs.NumRecords(); n > 0 {
			// A commit that comes too late is no loss: others read from the last.
			_ = cl.CommitRecords(context.WithoutCancel(ctx), fs.Records()...)
		}
		cl.AllowRebalance()
	}
}

// consumeByHTTP is a member over HTTP until ctx ends; node says whom to ask next.
func (l *ledger) consumeByHTTP(ctx context.Context, node func() string, member string) {
	for ctx.Err() == nil {
		base := node()
		url := base + "/v1/topics/orders/consume?group=billing&max_bytes=4000&wait_ms=200&session_timeout_ms=6000&member=" + member
		req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, url, nil)
		if err != nil {
			l.t.Error(err)
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			l.t.Error(err)
			return
		}
		var got consumed
		err = json.NewDecoder(resp.Body).Decode(&got)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || err != nil {
			l.t.Errorf("consume by %s: %d %v", member, resp.StatusCode, err)
			return
		}
		for _, r := range got.Records {
			l.note(member, got.Generation, r.Partition, r.Offset)
		}
		if len(got.Records) == 0 {
			continue
		}
		offsets, err := json.Marshal(got.NextOffsets)
		if err != nil {
			l.t.Error(err)
			return
		}
		body := fmt.Sprintf(`{"group":"billing","member":%q,"offsets":%s}`, member, offsets)
		resp, err = http.Post(node()+"/v1/topics/orders/commit", "application/json", strings.NewReader(body))
		if err != nil {
			l.t.Error(err)
			return
		}
		_ = resp.Body.Close()
		if s := resp.StatusCode; s != http.StatusOK && s != http.StatusConflict {
			l.t.Errorf("commit by %s: %d", member, s)
		}
	}
}

// TestHTTPAndKafkaShareAGroup: consumers of both kinds come and go in one group;
// no two of them are given records of one partition in one generation, and none
// is missed.
func TestHTTPAndKafkaShareAGroup(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(), "sticky": kgo.StickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			srv, c := startHTTP(t)
			c.createTopic("orders", 6)
			l := &ledger{t: t, owners: map[[2]int32]string{}, seen: map[[2]int64][]int32{}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var produced atomic.Int64
			var all sync.WaitGroup
			producing, stop := context.WithCancel(ctx)
			all.Go(func() {
				for producing.Err() == nil {
					var b strings.Builder
					for i := range 20 {
						if i > 0 {
							b.WriteByte(',')
						}
						fmt.Fprintf(&b, `{"partition":%d,"value_text":"x"}`, i%6)
					}
					c.want(200, `"failed":0`, "POST", "/v1/topics/orders/produce", `{"records":[`+b.String()+`]}`)
					produced.Add(20)
				}
			})
			member := func(consume func(context.Context)) context.CancelFunc {
				ctx, leave := context.WithCancel(ctx)
				all.Go(func() { consume(ctx) })
				return leave
			}
			byKafka := func() context.CancelFunc {
				return member(func(ctx context.Context) { l.consumeByKafka(ctx, srv.Addr(), balancer) })
			}
			byHTTP := func(name string) context.CancelFunc {
				return member(func(ctx context.Context) { l.consumeByHTTP(ctx, func() string { return c.base }, name) })
			}
			settle := func(more int) {
				t.Helper()
				for until := l.count() + more; l.count() < until; {
					select {
					case <-ctx.Done():
						t.Fatalf("stuck at %d records of %d", l.count(), produced.Load())
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
			leave := []context.CancelFunc{byHTTP("one")}
			settle(200)
			leave = append(leave, byKafka())
			settle(400)
			leave = append(leave, byHTTP("two"))
			settle(400)
			leave = append(leave, byKafka())
			settle(400)
			leave[1]() // The first Kafka member leaves.
			settle(400)
			leave[0]() // A session is not used any more.
			leave = append(leave, byHTTP("three"))
			settle(400)
			stop()
			for l.count() < int(produced.Load()) {
				select {
				case <-ctx.Done():
					t.Fatalf("%d of %d records were given to somebody", l.count(), produced.Load())
				case <-time.After(10 * time.Millisecond):
				}
			}
			for _, f := range leave {
				f()
			}
			all.Wait()
			for at := range l.seen {
				if at[1] >= produced.Load() {
					t.Errorf("record %s-%d was never produced", strconv.Itoa(int(at[0])), at[1])
				}
			}
			t.Logf("%d records, %d owners by generation", l.count(), len(l.owners))
		})
	}
}
