package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/peer"
)

// A start says what it waits for after firstWord, and then every nextWord: a broker of
// a cluster that nobody answers would look as if it hung.
const (
	firstWord = 2 * time.Second
	nextWord  = 30 * time.Second
)

// tellWaits says what the start of a broker of a cluster waits for. stop ends it.
func (b *Broker) tellWaits(ctx context.Context) (stop func()) {
	if b.cluster == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { // Ends with stop, which waits for it.
		timer := time.NewTimer(firstWord)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			b.tellWait(ctx)
			timer.Reset(nextWord)
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

func (b *Broker) tellWait(ctx context.Context) {
	s := b.quorum.Status()
	if s.Leader == kafka.NoBroker {
		down := b.unreached(ctx)
		if ctx.Err() != nil {
			return // The wait is over.
		}
		b.log.Warn("waiting for the other voters: a majority of them must be there, and all at their very first "+
			"start; are they running, and is --voters the same on all, with the --cluster-listen of each?",
			"voters", s.Voters, "addresses", b.cluster.voters, "unreached", down)
		return
	}
	b.log.Warn("waiting for the active controller to let this broker in", "controller", s.Leader, "voters", s.Voters)
}

// unreached says which of --voters can't be reached, and why: a name that does not resolve is
// waited for in vain. One that is there and waits too may be silent, which is no news.
func (b *Broker) unreached(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, firstWord)
	defer cancel()
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
		why    []string
	)
	for id := range b.cluster.voters {
		if id == b.cluster.self.ID {
			continue
		}
		asking.Go(func() { // Ends with ctx.
			err := b.cluster.requests.Reach(ctx, id)
			var down *peer.DownError
			if !errors.As(err, &down) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			why = append(why, fmt.Sprintf("%d: %v", id, down))
		})
	}
	asking.Wait()
	slices.Sort(why)
	return why
}

// compareVoters says that the voters that this broker was started with are not those
// that decide: a directory that has metadata goes by that. What it had at the start may
// be old, so it is called when this broker knows what was decided. Voters that are not
// named are no reason: who joins names any that it can ask.
func (b *Broker) compareVoters() {
	if b.cluster == nil {
		return
	}
	told, voters := slices.Sorted(maps.Keys(b.cluster.voters)), b.quorum.Status().Voters
	others := slices.DeleteFunc(slices.Clone(told), func(id kafka.BrokerID) bool { return slices.Contains(voters, id) })
	if len(others) == 0 {
		return
	}
	if b.isAlone(voters) && !slices.ContainsFunc(told, b.isKnown) { // Votes are not what is missing.
		b.log.Warn("this broker is a cluster of its own, and none of --voters is part of it: its data directory was first "+
			"started without --voters, or with others. What is in it stays there: to have this broker join those, start it "+
			"with an empty data directory",
			"voters", voters, "told", told)
		return
	}
	b.log.Warn("--voters names brokers that have no vote. It counts at the very first start only, and says where the others "+
		"are: to give votes, run strandline cluster add, and to take them, strandline cluster remove-voter",
		"voters", voters, "told", told, "without_vote", others)
}

// isAlone says that this broker is the only voter.
func (b *Broker) isAlone(voters []kafka.BrokerID) bool {
	return len(voters) == 1 && voters[0] == b.cluster.self.ID
}

// isKnown says that a broker is this one, or was registered in the same cluster.
func (b *Broker) isKnown(id kafka.BrokerID) bool {
	_, ok := b.control.Image().Broker(id)
	return ok || id == b.cluster.self.ID
}
