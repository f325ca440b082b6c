package fetcher_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// TestAcksArePrompt: whatever else goes on in the same fetches, no acknowledgement waits
// for a fetch that nobody wakes. Leaders move, stay under new epochs, and ask for
// confirmation; brokers hear of it one after the other; consumers come and go; and
// producers write all the while. Time is virtual: what takes longer than the back-off for
// metadata that is late was forgotten by somebody.
func TestAcksArePrompt(t *testing.T) {
	const topics, most = 3, 30 * time.Millisecond
	names := []string{"a", "b", "c"}
	replicated(t, 3, func(t *testing.T, w *world) {
		for i, name := range names {
			first := kafka.BrokerID(1 + i)
			w.create(name, 3, first, 1+first%3, 1+(first+1)%3)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var running sync.WaitGroup
		for i := range topics * 3 {
			running.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for ctx.Err() == nil {
					<-time.After(time.Duration(random.IntN(600)) * time.Millisecond)
					w.ackedSoon(names[i%topics], int32(i/topics), most)
				}
			})
		}
		running.Go(func() { w.moveAbout(ctx, names) })
		running.Go(func() { w.readAbout(ctx, names) })
		running.Wait()
	})
}

// leads returns who leads a partition, as decided.
func (w *world) leads(topic string, i int32) kafka.BrokerID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Image().Topic(topic).Partitions[i].Leader
}

// ackedSoon produces to whoever leads until that is acknowledged, which must not take
// longer than the time since the leader was elected, or most.
func (w *world) ackedSoon(topic string, i int32, most time.Duration) {
	began := time.Now()
	for {
		id := w.leads(topic, i)
		p := w.at(id, topic, i)
		info, err := p.Append(batch(w.t, "x"), -1, time.Now())
		if err == nil {
			err = p.Await(w.t.Context(), time.After(5*time.Second), info.LeaderEpoch, info.LastOffset+1)
		}
		if took := time.Since(began); took > most {
			w.t.Errorf("%v: an acknowledgement of %s-%d by %d took %v (%v)", began, topic, i, id, took, err)
		}
		if err == nil {
			return
		}
		began = time.Now() // Another leads, or is about to.
		<-time.After(time.Millisecond)
	}
}

// moveAbout elects leaders, of which brokers hear within 20 ms of one another.
func (w *world) moveAbout(ctx context.Context, names []string) {
	random := rand.New(rand.NewPCG(7, 7))
	for ctx.Err() == nil {
		<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
		topic, i := names[random.IntN(len(names))], random.Int32N(3)
		late := kafka.BrokerID(random.IntN(5)) // 0 and 4 are nobody.
		w.mu.Lock()
		members := w.state.Image().Topic(topic).Partitions[i].ISR
		if _, there := w.nodes[late]; there {
			w.deaf[late] = true
		}
		w.mu.Unlock()
		next := members[random.IntN(len(members))]
		w.change(topic, i, func(p *metadata.Partition) {
			p.Leader = next
			p.LeaderEpoch++
		})
		if _, there := w.nodes[late]; there {
			<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
			w.hear(late)
		}
		if random.IntN(3) == 0 {
			_ = w.confirm(w.leads(topic, i), topic)
		}
	}
}

// readAbout has consumers wait for high watermarks, at leaders and at followers.
func (w *world) readAbout(ctx context.Context, names []string) {
	random := rand.New(rand.NewPCG(8, 8))
	for ctx.Err() == nil {
		p := w.at(kafka.BrokerID(1+random.IntN(3)), names[random.IntN(len(names))], random.Int32N(3))
		waiting, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(100))*time.Millisecond)
		_ = p.Await(waiting, nil, p.LeaderEpoch(), p.HighWatermark()+1)
		cancel()
	}
}
