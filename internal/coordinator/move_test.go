package coordinator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/test/seeds"
)

// successor deposes p and returns the partition as the next leader finds it: with
// all that was committed, and with some of what was not.
func (p *fakePartition) successor(rng *rand.Rand) *fakePartition {
	p.depose()
	p.mu.Lock()
	defer p.mu.Unlock()
	next := &fakePartition{highWatermark: p.highWatermark}
	kept := false
	for _, data := range p.log {
		b, _, err := record.Next(data)
		if err != nil {
			panic(err)
		}
		if b.BaseOffset() >= p.highWatermark && (kept || rng.IntN(2) == 0) {
			kept = true // The tail ends here.
			break
		}
		next.log = append(next.log, data)
		next.end = b.LastOffset() + 1
	}
	return next
}

// cluster is two coordinators of one partition, of which one leads.
type cluster struct {
	mu      sync.Mutex
	brokers [2]*coordinator.Coordinator[*register]
	leader  int
	p       *fakePartition
}

// move hands the partition to the other broker; the old one may learn of it late
// or never.
func (c *cluster) move(rng *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.leader
	c.p = c.p.successor(rng)
	c.leader = 1 - old
	c.brokers[c.leader].Lead(3, c.p)
	if rng.IntN(2) == 0 {
		c.brokers[old].Resign(3)
	}
}

func (c *cluster) current() (*coordinator.Coordinator[*register], *fakePartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[c.leader], c.p
}

// answer is one reply that somebody waits for.
type answer chan any

// Complete implements shard.Caller; a second answer would block, and fail the
// test.
func (a answer) Complete(response any) { a <- response }

// ask runs a step on any broker, the right one or not, and returns its answer, or
// nil if it was refused.
func (c *cluster) ask(
	rng *rand.Rand, step func(m *register, to shard.Caller, fx *shard.Effects),
) any {
	broker, _ := c.current()
	if rng.IntN(4) == 0 {
		broker = c.brokers[rng.IntN(2)]
	}
	to := make(answer, 1)
	err := broker.Do(3, func(m *register, _ int64, fx *shard.Effects) { step(m, to, fx) })
	if err != nil {
		<-time.After(time.Millisecond)
		return nil
	}
	got := <-to
	if got == kafka.ErrNotCoordinator.String() {
		return nil
	}
	return got
}

// TestLeadershipMovesUnderCommits: the coordinator moves back and forth while
// values are written. Whatever was acknowledged is never lost, and what was read
// never goes back.
func TestLeadershipMovesUnderCommits(t *testing.T) {
	for seed := range seeds.Of(t, 20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { moveUnderCommits(t, seed) })
		})
	}
}

func moveUnderCommits(t *testing.T, seed uint64) {
	c := &cluster{p: &fakePartition{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range c.brokers {
		c.brokers[i] = coordinator.New(coordinator.Options[*register]{
			Topic: "topic", New: newRegister, Now: time.Now,
			CodeOf: func(error) kafka.Code { return kafka.ErrNotCoordinator },
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		running.Go(func() { _ = c.brokers[i].Run(ctx) })
	}
	c.brokers[0].Lead(3, c.p)

	var clients sync.WaitGroup
	for id := range keys {
		clients.Go(func() { commitAndRead(t, c, rand.New(rand.NewPCG(seed, uint64(id))), id) })
	}
	stop := make(chan struct{})
	running.Go(func() { disturb(c, rand.New(rand.NewPCG(seed, 99)), stop) })
	clients.Wait()
	close(stop)
	cancel()
	running.Wait()
}

// disturb moves the high watermark and the leadership until stop.
func disturb(c *cluster, rng *rand.Rand, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond):
		}
		if rng.IntN(8) == 0 {
			c.move(rng)
			continue
		}
		_, p := c.current()
		p.commit()
	}
}

// keys is the number of clients, each of which writes a key of its own.
const keys = 4

// commitAndRead writes 1, 2, 3... to a key, and reads all keys in between.
func commitAndRead(t *testing.T, c *cluster, rng *rand.Rand, id int) {
	var seen [keys]int // The highest values that were acknowledged or read.
	for n := 1; n <= 100; {
		if rng.IntN(3) == 0 {
			value := strconv.Itoa(n)
			got := c.ask(rng, func(_ *register, to shard.Caller, fx *shard.Effects) {
				set(fx, fmt.Sprint("key", id), value)
				fx.Reply(to, value)
			})
			if got != nil {
				seen[id] = n
			}
			n++ // Refused or not: it may be there.
			continue
		}
		read := rng.IntN(keys)
		got := c.ask(rng, func(m *register, to shard.Caller, fx *shard.Effects) {
			if len(m.offsets) > 0 {
				fx.WaitFor(m.offsets[len(m.offsets)-1])
			}
			fx.Reply(to, m.values[fmt.Sprint("key", read)])
		})
		if s, ok := got.(string); ok {
			value, _ := strconv.Atoi(s)
			if value < seen[read] {
				t.Errorf("key%d is %d after %d", read, value, seen[read])
				return
			}
			seen[read] = value
		}
	}
}
