package broker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
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
			b.tellWait()
			timer.Reset(nextWord)
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

func (b *Broker) tellWait() {
	s := b.quorum.Status()
	if s.Leader == kafka.NoBroker {
		b.log.Warn("waiting for the other voters: a majority of them must be there, and all at their very first "+
			"start; are they running, and is --voters the same on all?", "voters", s.Voters, "addresses", b.cluster.voters)
		return
	}
	b.log.Warn("waiting for the active controller to let this broker in", "controller", s.Leader, "voters", s.Voters)
}

// compareVoters says that the voters that this broker was started with are not those
// that its metadata knows: a directory that has metadata goes by that.
func (b *Broker) compareVoters() {
	if b.cluster == nil || len(b.cluster.voters) == 0 {
		return
	}
	told, known := slices.Sorted(maps.Keys(b.cluster.voters)), b.quorum.Status().Voters
	if len(known) > 0 && !slices.Equal(told, known) { // Who joins knows none.
		b.log.Warn("the metadata in the data directory knows other voters than --voters: those that it knows count, and "+
			"--voters says only where they are", "known", known, "told", told)
	}
}
