package fetcher_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/fetcher"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// TestReplication: what a leader appends is on every replica, byte by byte, before it
// is acknowledged, and soon.
func TestReplication(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 2, 1, 2, 3)
		for i := range 10 {
			info := w.produce(1, "orders", int32(i%2), fmt.Sprint("value-", i))
			if took := w.acked(1, "orders", int32(i%2), info); took >= 9*time.Millisecond {
				t.Errorf("record %d took %v", i, took)
			}
			for id := kafka.BrokerID(1); id <= 3; id++ {
				if end := w.at(id, "orders", int32(i%2)).Log().DurableEnd(); end <= info.LastOffset {
					t.Errorf("record %d was acknowledged, and on %d the log is durable to %d", i, id, end)
				}
			}
		}
		for i := range int32(2) {
			w.same("orders", i, 1, 2, 3)
		}
	})
}

// TestIdleFollowers ask once per replica.fetch.wait.max.ms, and learn the high watermark
// no later than that.
func TestIdleFollowers(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 50, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		<-time.After(600 * time.Millisecond)
		if got := w.at(2, "orders", 0).HighWatermark(); got != 1 {
			t.Errorf("the follower knows the high watermark %d", got)
		}
		before := w.nodes[2].asked(1)
		<-time.After(10 * time.Second)
		if asked := w.nodes[2].asked(1) - before; asked < 18 || asked > 22 {
			t.Errorf("%d requests in 10 s", asked)
		}
		if n := w.nodes[1].asked(2); n != 0 {
			t.Errorf("the leader asked its follower %d times", n)
		}
	})
}

// TestNewPartitionsDoNotWait: a partition that is new to a loop whose request waits for
// records is followed at once.
func TestNewPartitionsDoNotWait(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("first", 1, 1, 2)
		w.acked(1, "first", 0, w.produce(1, "first", 0, "a"))
		for i := range 5 {
			<-time.After(time.Duration(100+i) * time.Millisecond) // The request is parked.
			name := fmt.Sprint("later-", i)
			w.create(name, 1, 1, 2)
			if took := w.acked(1, name, 0, w.produce(1, name, 0, "a")); took > 50*time.Millisecond {
				t.Errorf("the first record of %s took %v", name, took)
			}
		}
	})
}

// TestOvertakenIsSentFirst: the leader has a new epoch and the follower hears of it just when
// it has begun its next request, which nobody has sent yet. What overtakes that one comes
// behind it all the same: before it, it would be refused, and the other wait for records.
func TestOvertakenIsSentFirst(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.create("others", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		<-time.After(100 * time.Millisecond) // The follower's fetch is parked.
		w.mu.Lock()
		w.deaf[2] = true
		w.mu.Unlock()
		late := func() {
			if w.nodes[2].beforeSend.Swap(nil) != nil {
				w.hear(2)
				<-time.After(time.Millisecond)
			}
		}
		w.nodes[2].beforeSend.Store(&late)
		w.elect("orders", 0, 1, 1, 2) // The parked fetch is refused, the next one is begun.
		if took := w.acked(1, "orders", 0, w.produce(1, "orders", 0, "b")); took > 20*time.Millisecond {
			t.Errorf("the first record of the new epoch took %v", took)
		}
		if w.nodes[2].beforeSend.Load() != nil {
			t.Error("no request was begun")
		}
	})
}

// TestUnfencedFollowerIsLetIn: a follower comes back while it is fenced still, so that its
// fetch does not bring it into the ISR, and waits for records. Once it is not fenced it
// counts at once, and not with its next fetch: nothing may be acknowledged without it.
func TestUnfencedFollowerIsLetIn(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 3, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		fenced := func(yes bool) {
			w.decide(&metadata.BrokerChanged{ID: 3, Epoch: 3, Fenced: yes})
		}
		fenced(true)
		for i := range int32(3) {
			w.change("orders", i, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1, 2} })
		}
		for range 3 {
			<-time.After(1100 * time.Millisecond) // The follower's fetches are parked, and it may be asked for.
			if got := w.members("orders", 1); len(got) != 2 {
				t.Fatalf("in sync while one is fenced: %v", got)
			}
			fenced(false)
			<-time.After(20 * time.Millisecond)
			for i := range int32(3) {
				if got := w.members("orders", i); len(got) != 3 {
					t.Errorf("in sync in partition %d, 20 ms after none is fenced: %v", i, got)
				}
			}
			fenced(true)
			for i := range int32(3) {
				w.change("orders", i, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1, 2} })
			}
		}
	})
}

// TestFailover: a leader dies with records that nobody else has. The next one goes on
// at once, and what was acknowledged is there; the old one comes back as a follower.
func TestFailover(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.create("others", 1, 2, 3) // So that 3 waits at 2 for records.
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.acked(2, "others", 0, w.produce(2, "others", 0, "x"))
		<-time.After(200 * time.Millisecond)
		for id := kafka.BrokerID(2); id <= 3; id++ {
			w.network.Partition(host(1), host(id))
		}
		w.produce(1, "orders", 0, "lost-1", "lost-2")
		<-time.After(50 * time.Millisecond)
		disk := w.crash(1, 100)
		w.elect("orders", 0, 2, 2, 3)
		if took := w.acked(2, "orders", 0, w.produce(2, "orders", 0, "b")); took > 50*time.Millisecond {
			t.Errorf("the first record of the new leader took %v", took)
		}
		for id := kafka.BrokerID(2); id <= 3; id++ {
			w.network.Heal(host(1), host(id))
		}
		w.restart(1, disk)
		w.same("orders", 0, 1, 2, 3)
		<-time.After(time.Second)
		if got := w.members("orders", 0); !slices.Equal(got, []kafka.BrokerID{2, 3, 1}) {
			t.Errorf("in sync: %v", got)
		}
		if text := w.log.String(); !strings.Contains(text, "the log is cut where it parts from the leader's") ||
			strings.Contains(text, "are lost") {
			t.Errorf("the log says:\n%s", text)
		}
	})
}

// TestPowerLoss of a follower, again and again: it comes back with what was synced, and
// is in sync again.
func TestPowerLoss(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		for i := range 5 {
			w.acked(1, "orders", 0, w.produce(1, "orders", 0, fmt.Sprint("value-", i)))
			if i%2 == 1 {
				w.produce(1, "orders", 0, "in flight")
			}
			disk := w.crash(2, i*25)
			w.change("orders", 0, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1} })
			w.acked(1, "orders", 0, w.produce(1, "orders", 0, "alone"))
			w.restart(2, disk)
			w.same("orders", 0, 1, 2)
			<-time.After(time.Second)
			if got := w.members("orders", 0); len(got) != 2 {
				t.Fatalf("after %d power losses in sync: %v", i+1, got)
			}
		}
	})
}

// TestSlowFollowerLeaves the ISR after replica.lag.time.max.ms, and what waits for it is
// acknowledged; when it hears again it joins.
func TestSlowFollowerLeaves(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.network.Partition(host(1), host(2))
		begin := time.Now()
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "b"))
		if took := time.Since(begin); took < maxLag || took > 2*maxLag {
			t.Errorf("a follower that is gone was dropped after %v", took)
		}
		if got := w.members("orders", 0); len(got) != 1 {
			t.Errorf("in sync: %v", got)
		}
		w.network.Heal(host(1), host(2))
		<-time.After(45 * time.Second) // The request that lost its answer ends.
		if got := w.members("orders", 0); len(got) != 2 {
			t.Errorf("in sync after the network is back: %v", got)
		}
		w.same("orders", 0, 1, 2)
	})
}

// TestIdleFollowerComesBack: a follower that the controller put out of the ISR, and that
// lacks nothing, is wanted in again although there are no records to fetch.
func TestIdleFollowerComesBack(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		<-time.After(5 * time.Second)
		w.change("orders", 0, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1} })
		<-time.After(2 * time.Second)
		if got := w.members("orders", 0); len(got) != 2 {
			t.Errorf("in sync: %v", got)
		}
	})
}

// TestControllerAway: what is wanted is asked for again until there is an answer; until
// then a follower that is wanted in counts.
func TestControllerAway(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.isAway(true)
		w.network.Partition(host(1), host(2))
		info := w.produce(1, "orders", 0, "a")
		<-time.After(3 * maxLag)
		if err := w.at(1, "orders", 0).Acknowledged(info.LeaderEpoch, 1); err == nil {
			t.Error("acknowledged by a leader alone, whose follower is in the ISR")
		}
		w.isAway(false)
		w.acked(1, "orders", 0, info)
		if got := w.members("orders", 0); len(got) != 1 {
			t.Errorf("in sync: %v", got)
		}
	})
}

// TestTooFarBehind: a follower that was away while its leader deleted what it lacks
// begins anew where the leader begins.
func TestTooFarBehind(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		disk := w.crash(2, 100)
		w.change("orders", 0, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1} })
		for range 5 {
			w.acked(1, "orders", 0, w.produce(1, "orders", 0, "b"))
		}
		w.must(w.at(1, "orders", 0).Log().DeleteRecords(4))
		w.restart(2, disk)
		w.same("orders", 0, 1, 2)
		if got := w.at(2, "orders", 0).Log().LogStartOffset(); got != 4 {
			t.Errorf("the follower's log starts at %d", got)
		}
	})
}

// TestNoSuchOffset: a leader that says that it lacks what comes next, though its log begins
// before that, is not believed: the follower throws nothing away, and asks again.
func TestNoSuchOffset(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		var denies atomic.Bool
		w.edit = func(resp kmsg.Response) {
			fetched, ok := resp.(*kmsg.FetchResponse)
			if !ok || !denies.Load() {
				return
			}
			for _, rt := range fetched.Topics {
				for i := range rt.Partitions {
					p := &rt.Partitions[i]
					p.ErrorCode, p.LogStartOffset, p.RecordBatches = int16(kafka.ErrOffsetOutOfRange), 0, nil
				}
			}
		}
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a", "b"))
		denies.Store(true)
		w.produce(1, "orders", 0, "c")
		<-time.After(2 * time.Second)
		if log := w.at(2, "orders", 0).Log(); log.LogStartOffset() != 0 || log.LogEndOffset() != 2 {
			t.Errorf("the follower's log begins at %d and ends at %d, want 0 and 2", log.LogStartOffset(), log.LogEndOffset())
		}
		denies.Store(false)
		w.same("orders", 0, 1, 2)
		if text := w.log.String(); !strings.Contains(text, "it has no such offset") {
			t.Errorf("the log says:\n%s", text)
		}
	})
}

// TestNewReplica: a broker that becomes a replica gets everything.
func TestNewReplica(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		for range 5 {
			w.acked(1, "orders", 0, w.produce(1, "orders", 0, strings.Repeat("x", 400<<10)))
		}
		w.must(w.at(1, "orders", 0).Log().DeleteRecords(2))
		w.change("orders", 0, func(p *metadata.Partition) { p.Replicas = []kafka.BrokerID{1, 2, 3} })
		w.same("orders", 0, 1, 2, 3)
		<-time.After(time.Second)
		if got := w.members("orders", 0); len(got) != 3 {
			t.Errorf("in sync: %v", got)
		}
	})
}

// TestZombieLeader: a leader that hears of no decision acknowledges nothing, and follows
// when it hears again.
func TestZombieLeader(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.mu.Lock()
		w.deaf[1] = true
		w.mu.Unlock()
		w.elect("orders", 0, 2, 2)
		info := w.produce(1, "orders", 0, "never")
		w.acked(2, "orders", 0, w.produce(2, "orders", 0, "b", "c"))
		<-time.After(3 * maxLag)
		if err := w.at(1, "orders", 0).Acknowledged(info.LeaderEpoch, info.LastOffset+1); err == nil {
			t.Error("the zombie acknowledged")
		}
		w.hear(1)
		w.same("orders", 0, 1, 2)
		if err := w.at(1, "orders", 0).Acknowledged(info.LeaderEpoch, info.LastOffset+1); err == nil {
			t.Error("what is gone is acknowledged")
		}
	})
}

// TestDeletedTopic: a topic goes while it is followed.
func TestDeletedTopic(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		topic := w.create("orders", 3, 1, 2)
		w.create("others", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.decide(&metadata.TopicDeleted{ID: topic.ID})
		w.acked(1, "others", 0, w.produce(1, "others", 0, "a"))
		<-time.After(time.Second)
		if ids := w.nodes[2].dir.Logs(); len(ids) != 1 {
			t.Errorf("logs of the follower: %v", ids)
		}
	})
}

// TestHighWatermarkNeverFalls, on any broker, while leadership goes round.
func TestHighWatermarkNeverFalls(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		known := map[kafka.BrokerID]kafka.Offset{}
		check := func() {
			for id := kafka.BrokerID(1); id <= 3; id++ {
				p := w.at(id, "orders", 0)
				now := p.HighWatermark()
				if now < known[id] || now > p.Log().LogEndOffset() {
					t.Errorf("broker %d: high watermark %d, was %d, log end %d", id, now, known[id], p.Log().LogEndOffset())
				}
				known[id] = now
			}
		}
		for i := range 12 {
			leader := kafka.BrokerID(i%3 + 1)
			w.elect("orders", 0, leader, 1, 2, 3)
			for n := range 5 {
				info := w.produce(leader, "orders", 0, fmt.Sprint(i, "-", n))
				if n != 4 {
					w.acked(leader, "orders", 0, info)
				}
				check()
			}
		}
		w.elect("orders", 0, 1, 1, 2, 3)
		w.same("orders", 0, 1, 2, 3)
		check()
	})
}

// TestReadersAtAFollower hear of the high watermark at once once they are known to wait.
func TestReadersAtAFollower(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		p := w.at(2, "orders", 0)
		for i := range kafka.Offset(5) {
			woken := make(wakes, 1)
			var waiter partition.Waiter
			if !p.Wait(&waiter, woken, i+1) {
				t.Fatal("nothing to wait for")
			}
			<-time.After(700 * time.Millisecond)
			w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
			begin := time.Now()
			<-woken
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("record %d: the follower's reader heard of it %v later", i, took)
			}
			if heard := time.Since(p.Heard()); heard > 50*time.Millisecond {
				t.Errorf("heard %v ago", heard)
			}
		}
	})
}

// TestSeveralLoops of one leader share its partitions.
func TestSeveralLoops(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 20, 1, 2)
		for i := range int32(20) {
			w.acked(1, "orders", i, w.produce(1, "orders", i, "a"))
		}
		for id, want := range map[kafka.BrokerID]bool{1: true, -1: true, -2: true, -3: false} {
			if got := w.nodes[2].asked(id) > 0; got != want {
				t.Errorf("way %d was used: %v", id, got)
			}
		}
	}, func(s *fetcher.Settings) { s.Fetchers = 3 })
}

// TestEveryFollowerLearnsTheHighWatermark soon, although it moves after some of them were
// told that there is nothing more, and then nothing happens.
func TestEveryFollowerLearnsTheHighWatermark(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 3, 1, 2, 3)
		for i := range int32(3) {
			w.acked(1, "orders", i, w.produce(1, "orders", i, "a"))
		}
		<-time.After(1100 * time.Millisecond)
		for i := range int32(3) {
			for id := kafka.BrokerID(2); id <= 3; id++ {
				if got := w.at(id, "orders", i).HighWatermark(); got != 1 {
					t.Errorf("broker %d knows %d of partition %d", id, got, i)
				}
			}
		}
		w.must(w.at(1, "orders", 0).Log().DeleteRecords(1))
		<-time.After(1600 * time.Millisecond)
		if got := w.at(3, "orders", 0).Log().LogStartOffset(); got != 1 {
			t.Errorf("the follower's log starts at %d", got)
		}
	})
}

// wakes counts wake-ups.
type wakes chan struct{}

func (w wakes) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// TestManyPartitions of which few have records cost a request what these few cost.
func TestManyPartitions(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 100, 1, 2)
		for i := range int32(100) {
			w.acked(1, "orders", i, w.produce(1, "orders", i, "a"))
		}
		for i := range int32(100) {
			w.same("orders", i, 1, 2)
		}
		for i := range int32(100) {
			w.elect("orders", i, 2-kafka.BrokerID(i%2), 1, 2)
		}
		for i := range int32(100) {
			leader := 2 - kafka.BrokerID(i%2)
			if took := w.acked(leader, "orders", i, w.produce(leader, "orders", i, "b")); took > 100*time.Millisecond {
				t.Errorf("partition %d took %v", i, took)
			}
		}
	})
}
