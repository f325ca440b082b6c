// Package fetcher is the follower's side of replication: it pulls the records of the
// partitions that this broker follows from their leaders, and has package partition
// append them, or cut the log where the two part.
//
// It assumes that package partition is told the roles first (Partition.Following says
// whom to follow), and that a leader answers requests of one connection in order and
// cuts a waiting one short when the next of its session arrives.
//
// There is one loop for each leader (or num.replica.fetchers of them, which share its
// partitions), and each is one goroutine that owns one fetch session (KIP-227):
//
//	+--> ask: what changed since the last request -----+
//	|                                                  | parked at the leader until
//	|                                                  | there are records, or
//	|    wait until all that was appended is synced    | replica.fetch.wait.max.ms
//	|                        ^                         | is over
//	|                        |                         v
//	+------------------------+-- append or truncate: answer
//
// Invariants:
//
//	a fetch offset that is sent is the end of the log and on disk: it acknowledges
//	an answer is taken only for partitions that still follow the leader under the
//	epoch they were asked for with; records that are there already are left out
//	a partition that fails backs off alone; the others of its leader go on
//	nothing runs and no connection is made while there is nothing to follow
//	what a leader asks (partition.Confirm) is answered by a fetch whose position was
//	looked up, under the leader's epoch, after the question had come
//
// Failing cases that this is for:
//
//   - A leader dies: its loop backs off, until the metadata names another. The
//     partitions then move to the loop of that one, whose fetch is probably waiting
//     for records: the next request overtakes it, so that the move costs one round
//     trip and not the rest of the wait.
//   - The request that overtakes is sent by a goroutine that runs before the one of the
//     request that it is to overtake: the leader refuses it, and the other waits there for
//     nobody. So each is handed over only after the one before.
//   - The leader does not know yet that it leads (UNKNOWN_LEADER_EPOCH), or this broker
//     does not know yet that it does not any more (FENCED_LEADER_EPOCH): the partition
//     asks again soon, then less often.
//   - The answer to a request is lost, or comes after its partitions have moved on:
//     the session starts over; nothing was acknowledged that is not on disk.
//   - Bytes are damaged on their way, or at the leader: the batch's CRC is checked on
//     append, and the same is asked for again.
//   - The disk is full, or the log does not take what comes: the same.
//
// Follow may be called from any goroutine, Run once. Deliberately absent: who leads
// (package controller), and what is done with records (package partition).
package fetcher

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// Requester sends requests to one broker; see package peer.
type Requester interface {
	// Send hands a request over, and returns what waits for its answer. Those that are
	// handed over one after the other arrive, and are answered, in that order.
	Send(ctx context.Context, req kmsg.Request) (await func(context.Context) (kmsg.Response, error), err error)
}

// fetch sends a fetch and waits for its answer. sent, if any, is called in between, or when
// nothing could be sent.
func fetch(ctx context.Context, to Requester, req *kmsg.FetchRequest, sent func()) (*kmsg.FetchResponse, error) {
	await, err := to.Send(ctx, req)
	if sent != nil {
		sent()
	}
	if err != nil {
		return nil, err
	}
	resp, err := await(ctx)
	if err != nil {
		return nil, err
	}
	fetched, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("a %T answers a fetch", resp)
	}
	return fetched, nil
}

// Settings are the broker's settings for followers.
type Settings struct {
	Fetchers          int           // num.replica.fetchers: loops for each leader.
	WaitMax           time.Duration // replica.fetch.wait.max.ms.
	MinBytes          int32         // replica.fetch.min.bytes.
	MaxBytes          int32         // replica.fetch.response.max.bytes.
	PartitionMaxBytes int32         // replica.fetch.max.bytes.
	// Backoff is how long a partition that fails waits at the most
	// (replica.fetch.backoff.ms); it begins with much less.
	Backoff time.Duration
	// Timeout is how long an answer may take on top of WaitMax
	// (replica.socket.timeout.ms).
	Timeout time.Duration
}

// DefaultSettings are Kafka's.
func DefaultSettings() Settings {
	return Settings{
		Fetchers: 1, WaitMax: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 10 << 20, PartitionMaxBytes: 1 << 20,
		Backoff: time.Second, Timeout: 30 * time.Second,
	}
}

// Options make a Fetcher.
type Options struct {
	Self kafka.BrokerID
	// BrokerEpoch returns the epoch of this broker's registration now.
	BrokerEpoch func() kafka.BrokerEpoch
	// To returns the way to a broker. Nothing else may go that way: a fetch that waits
	// for records holds up what is behind it.
	To func(kafka.BrokerID) Requester
	// ToShare is To for the loops of a leader beside the first, which need ways of
	// their own; with nil there is one loop, whatever the settings say.
	ToShare  func(id kafka.BrokerID, share int) Requester
	Settings func() Settings
	// Joined reports whether this process has joined the cluster: it knows what was decided
	// before it started. nil for always.
	Joined func() bool
	Now    func() time.Time
	Logger *slog.Logger
}

// Fetcher follows leaders.
type Fetcher struct {
	o    Options
	wake chan struct{} // Has room for one: a loop is to be started.

	mu    sync.Mutex
	loops map[loopID]*loop
	at    map[*partition.Partition]*loop
	fresh []*loop // Not started yet.
}

// loopID names a loop: of one leader, the number of its share of the partitions.
type loopID struct {
	leader kafka.BrokerID
	share  int
}

// New returns a Fetcher that fetches nothing before Run.
func New(o Options) *Fetcher {
	return &Fetcher{
		o: o, wake: make(chan struct{}, 1), loops: map[loopID]*loop{}, at: map[*partition.Partition]*loop{},
	}
}

// Follow takes notice of a partition whose leader, or leader epoch, has changed, or
// which is followed no more.
func (f *Fetcher) Follow(p *partition.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	following, ok := p.Following()
	ok = ok && following.Leader != f.o.Self
	id := loopID{following.Leader, f.share(p)}
	if old := f.at[p]; old != nil && (!ok || old.id != id) {
		delete(old.followed, p)
		delete(f.at, p)
		old.poke()
	}
	if !ok {
		return
	}
	l := f.loops[id]
	if l == nil {
		l = newLoop(f, id)
		f.loops[id] = l
		f.fresh = append(f.fresh, l)
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	f.at[p] = l
	l.followed[p] = following.LeaderEpoch
	l.poke()
}

// share spreads partitions over the loops of a leader.
func (f *Fetcher) share(p *partition.Partition) int {
	n := f.o.Settings().Fetchers
	if n <= 1 || f.o.ToShare == nil {
		return 0
	}
	h := fnv.New32a()
	id := p.ID()
	_, _ = h.Write(id.ID[:])
	return int((h.Sum32() + uint32(id.Partition)) % uint32(n))
}

// Run fetches until ctx ends.
func (f *Fetcher) Run(ctx context.Context) error {
	loops, ctx := errgroup.WithContext(ctx)
	for {
		f.mu.Lock()
		fresh := f.fresh
		f.fresh = nil
		f.mu.Unlock()
		for _, l := range fresh {
			// Ends with ctx, or when it has nothing to follow; Run waits for it.
			loops.Go(func() error {
				l.run(ctx)
				return nil
			})
		}
		select {
		case <-ctx.Done():
			return loops.Wait()
		case <-f.wake:
		}
	}
}

// to returns a loop's way to its leader.
func (f *Fetcher) to(id loopID) Requester {
	if id.share > 0 {
		return f.o.ToShare(id.leader, id.share)
	}
	return f.o.To(id.leader)
}

// retire ends a loop that follows nothing any more; false if it does.
func (f *Fetcher) retire(l *loop) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(l.followed) > 0 {
		return false
	}
	delete(f.loops, l.id)
	return true
}
