// Package wild is clients that keep none of the rules of transactions: several share each
// transactional id, go on with producer ids and epochs that are over, mix requests of all
// versions, of transactions 1 and 2, in any order, and deliver late what they have sent
// before. No library would do that; processes that are stopped for a while, and networks
// that hold things up, look like it to a broker.
//
// Whatever they do, the logs must tell one story, which Verify looks for: see check.go.
package wild

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options say who does what.
type Options struct {
	Addrs      []string
	Topic      string // Which exists.
	Partitions int32
	IDs        int // Transactional ids.
	Clients    int // Each of which uses all of them.
}

// Group is whose offsets are committed in transactions.
const Group = "wild"

// credential is what a broker gave to a producer.
type credential struct {
	producer int64
	epoch    int16
}

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// sequenced is where a producer's sequences are counted.
type sequenced struct {
	credential
	partition int32
}

// batch is a batch that was sent.
type batch struct {
	id string
	sequenced
	sequence int32
	value    uint64
	bytes    []byte
}

// end is an EndTxn that was answered without an error.
type end struct {
	id string
	credential
	version int16
	commit  bool
}

// Load is clients that go on until Verify.
type Load struct {
	Options
	t    testing.TB
	stop context.CancelFunc
	done sync.WaitGroup

	value atomic.Uint64
	ended chan struct{} // Has a token after a transaction has ended.

	mu     sync.Mutex
	given  map[string][]credential // By transactional id, in order.
	inits  map[credential]bool     // Given to one who claimed nothing.
	counts map[sequenced]*counter
	sent   map[uint64]batch
	late   []batch
	acked  map[uint64]place
	ends   []end
	seen   map[place]uint64 // By a read_committed reader that read along.
	codes  map[string]int   // What was answered how often.
	broken []string         // What was wrong at once.
}

// counter is the next sequence of a producer in a partition, and a batch of which nobody
// knows whether it was appended.
type counter struct {
	busy    bool
	next    int32
	pending *batch
}

// Start has the clients begin; they end with the test, or by Verify.
func Start(t testing.TB, o Options) *Load {
	t.Helper()
	l := &Load{
		Options: o, t: t, ended: make(chan struct{}, 1), given: map[string][]credential{}, inits: map[credential]bool{},
		counts: map[sequenced]*counter{}, sent: map[uint64]batch{}, acked: map[uint64]place{},
		seen: map[place]uint64{}, codes: map[string]int{},
	}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	t.Cleanup(func() { stop(); l.done.Wait() })
	for i := range o.Clients {
		cl := l.client()
		c := &client{Load: l, cl: cl, random: rand.New(rand.NewPCG(uint64(i), 7)), coordinators: map[string]int32{}}
		l.done.Go(func() { defer cl.Close(); c.run(ctx) })
	}
	l.done.Go(func() { l.readAlong(ctx) })
	return l
}

func (l *Load) client(more ...kgo.Opt) *kgo.Client {
	l.t.Helper()
	const patience = time.Second
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.Addrs...), kgo.AlwaysRetryEOF(), kgo.DialTimeout(patience), kgo.RequestTimeoutOverhead(3 * patience),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
	}, more...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	return cl
}

// AwaitMore waits until n more transactions have ended by a client's wish.
func (l *Load) AwaitMore(n int) {
	l.t.Helper()
	const patience = time.Minute
	tooLong := time.NewTimer(patience)
	defer tooLong.Stop()
	for want := l.endCount() + n; l.endCount() < want; {
		select {
		case <-l.ended:
		case <-tooLong.C:
			l.t.Fatalf("no %d more transactions have ended within %v", n, patience)
		}
	}
}

func (l *Load) endCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ends)
}

// Summary says what was done so far.
func (l *Load) Summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d ends of transactions, %d batches sent, %d acknowledged", len(l.ends), len(l.sent), len(l.acked))
}

// client is one client.
type client struct {
	*Load
	cl           *kgo.Client
	random       *rand.Rand
	coordinators map[string]int32
	leaders      []int32
}

// step is something that a client does.
type step struct {
	weight int
	do     func(c *client, ctx context.Context, id string)
}

func steps() []step {
	return []step{
		{2, (*client).init},
		{6, (*client).addPartitions},
		{2, (*client).addOffsets},
		{14, (*client).produce},
		{3, (*client).commitOffsets},
		{5, (*client).end},
		{2, (*client).sendLate},
	}
}

func (c *client) run(ctx context.Context) {
	all, total := steps(), 0
	for _, s := range all {
		total += s.weight
	}
	for ctx.Err() == nil {
		id := fmt.Sprint("wild-", c.random.IntN(c.IDs))
		n := c.random.IntN(total)
		for _, s := range all {
			if n -= s.weight; n < 0 {
				c.limited(ctx, func(ctx context.Context) { s.do(c, ctx, id) })
				break
			}
		}
		if c.random.IntN(30) == 0 {
			pause(ctx, time.Duration(c.random.IntN(1500))*time.Millisecond) // Some time-outs are shorter.
		}
	}
}

func (c *client) limited(ctx context.Context, do func(context.Context)) {
	const patience = 4 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	do(ctx)
}

// who draws a credential of a transactional id: mostly the newest.
func (c *client) who(id string) (credential, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.given[id]
	switch {
	case len(all) == 0:
		return credential{}, false
	case c.random.IntN(6) > 0:
		return all[len(all)-1], true
	}
	return all[max(0, len(all)-1-c.random.IntN(4))], true
}

// pinned is a request of one version.
type pinned struct {
	kmsg.Request
	version int16
}

// MaxVersion implements kmsg.Request.
func (p pinned) MaxVersion() int16 { return p.version }

// ask sends a request to a broker, in a version up to most.
func (c *client) ask(ctx context.Context, broker int32, req kmsg.Request, most int16) (kmsg.Response, error) {
	return c.cl.Broker(int(broker)).Request(ctx, pinned{req, most})
}

// coordinated asks the coordinator of a group, or of a transactional id.
func (c *client) coordinated(ctx context.Context, id string, req kmsg.Request, most int16) kmsg.Response {
	broker, known := c.coordinators[id]
	if !known {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKeys = []string{id}
		if id != Group {
			find.CoordinatorType = 1
		}
		resp, err := find.RequestWith(ctx, c.cl)
		if err != nil || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != 0 {
			return nil
		}
		broker = resp.Coordinators[0].NodeID
		c.coordinators[id] = broker
	}
	resp, err := c.ask(ctx, broker, req, most)
	if err != nil {
		delete(c.coordinators, id)
		return nil
	}
	return resp
}

// told notes an answer's code, and forgets a coordinator that is none.
func (c *client) told(id, what string, code int16) bool {
	err := kerr.ErrorForCode(code)
	name := "ok"
	var known *kerr.Error
	if errors.As(err, &known) {
		name = known.Message
	}
	if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		delete(c.coordinators, id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codes[what+" "+name]++
	if err != nil && !slices.ContainsFunc(expected(what), func(e error) bool { return errors.Is(err, e) }) {
		c.broken = append(c.broken, fmt.Sprintf("%s was answered with %s, which clients do not expect", what, name))
	}
	return code == 0
}

// leader returns who leads a partition.
func (c *client) leader(ctx context.Context, partition int32) (int32, bool) {
	if c.leaders == nil {
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(c.Topic)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, c.cl)
		if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != int(c.Partitions) {
			return 0, false
		}
		c.leaders = make([]int32, c.Partitions)
		for _, p := range resp.Topics[0].Partitions {
			c.leaders[p.Partition] = p.Leader
		}
	}
	broker := c.leaders[partition]
	if broker < 0 {
		c.leaders = nil
	}
	return broker, broker >= 0
}

// somePartitions draws partitions, at least one.
func (c *client) somePartitions() []int32 {
	all := []int32{c.random.Int32N(c.Partitions)}
	if p := c.random.Int32N(c.Partitions); !slices.Contains(all, p) {
		all = append(all, p)
	}
	return all
}

// pause waits, as long as ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
