package fetcher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/test/seeds"
)

// faults is a run of a cluster that is hurt at random while it is written to and read.
type faults struct {
	*world
	random  *rand.Rand
	down    map[kafka.BrokerID]*memfs.FS // Disks of brokers that are down.
	cut     map[[2]kafka.BrokerID]bool
	rotten  bool // One disk has lost a bit, once.
	clients sync.WaitGroup

	seen    sync.Mutex
	written int
	// newest is the leader epoch of the newest record that was acknowledged, and last its offset.
	newest                 kafka.LeaderEpoch
	last                   kafka.Offset
	confirmed, unconfirmed int
	promised               map[kafka.Offset]string // To producers.
	read                   map[kafka.Offset]string // By consumers.
}

const faultTopic = "orders"

// TestFaults: whatever is done to brokers and their network, nothing that was
// acknowledged or read is lost or changes its place, and in the end all replicas are the
// same and in sync. Elections are from the ISR only.
func TestFaults(t *testing.T) {
	all := slices.Collect(seeds.Of(t, 16))
	// A bit flips in the base offset of a batch, and the rest of the log does not continue it.
	all = append(all, 3042583840)
	for _, seed := range all {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				f := &faults{
					world: w, random: rand.New(rand.NewPCG(seed, 1)), down: map[kafka.BrokerID]*memfs.FS{},
					cut: map[[2]kafka.BrokerID]bool{}, promised: map[kafka.Offset]string{}, read: map[kafka.Offset]string{}, last: kafka.NoOffset,
				}
				w.create(faultTopic, 1, 1, 2, 3)
				for range 150 {
					f.step()
				}
				f.heal()
				f.check()
			})
		})
	}
}

// partition returns the state as decided.
func (f *faults) partition() metadata.Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Image().Topic(faultTopic).Partitions[0]
}

// step does one thing at random.
func (f *faults) step() {
	id := kafka.BrokerID(f.random.IntN(3) + 1)
	other := id%3 + 1
	switch n := f.random.IntN(100); {
	case n < 50:
		f.write()
	case n < 60:
		f.look()
		f.confirm()
	case n < 62:
		f.trim()
	case n < 69:
		f.kill(id)
	case n < 78:
		f.revive(id)
	case n < 83 && !f.cut[pair(id, other)]:
		f.cut[pair(id, other)] = true
		f.network.Partition(host(id), host(other))
	case n < 88:
		f.mend(id, other)
	case n < 91:
		f.deafen(id)
	case n < 95:
		f.listen(id)
	case n < 98:
		f.prefer(id)
	default:
		f.mu.Lock()
		f.away = !f.away
		f.mu.Unlock()
	}
	<-time.After(time.Duration(f.random.IntN(1500)) * time.Millisecond)
}

func pair(a, b kafka.BrokerID) [2]kafka.BrokerID { return [2]kafka.BrokerID{min(a, b), max(a, b)} }

// write appends at the leader, or at a broker that takes itself for it, and notes when
// that is acknowledged.
func (f *faults) write() {
	for id, n := range f.nodes {
		p := n.applier.Table.Get(faultTopic, 0)
		if f.down[id] != nil || p == nil || p.Leads(kafka.NoLeaderEpoch) != nil {
			continue
		}
		f.seen.Lock()
		f.written++
		value := fmt.Sprint("value-", f.written)
		f.seen.Unlock()
		info, err := p.Append(batch(f.t, value), partition.AcksAll, time.Now())
		if err != nil {
			continue
		}
		f.clients.Go(func() {
			if p.Await(f.t.Context(), time.After(time.Minute), info.LeaderEpoch, info.LastOffset+1) != nil {
				return
			}
			f.note("acknowledged", f.promised, info.BaseOffset, value)
			f.seen.Lock()
			defer f.seen.Unlock()
			f.newest, f.last = max(f.newest, info.LeaderEpoch), max(f.last, info.LastOffset)
		})
	}
}

// confirm has each broker that takes itself for the leader ask its replicas: who is
// confirmed has all that any leader had acknowledged by then.
func (f *faults) confirm() {
	for id, n := range f.nodes {
		p := n.applier.Table.Get(faultTopic, 0)
		if f.down[id] != nil || p == nil || p.Leads(kafka.NoLeaderEpoch) != nil {
			continue
		}
		f.seen.Lock()
		newest, last, epoch := f.newest, f.last, p.LeaderEpoch()
		f.seen.Unlock()
		wait := p.Confirm(epoch)
		f.clients.Go(func() {
			ctx, cancel := context.WithTimeout(f.t.Context(), partition.ConfirmTimeout)
			defer cancel()
			err := wait(ctx)
			end := p.Log().LogEndOffset()
			f.seen.Lock()
			defer f.seen.Unlock()
			if err != nil {
				f.unconfirmed++
				return
			}
			f.confirmed++
			if newest > epoch || p.Leads(epoch) == nil && end <= last {
				f.t.Errorf("broker %d is confirmed under epoch %d with a log up to %d, and epoch %d had acknowledged %d",
					id, epoch, end, newest, last)
			}
		})
	}
}

// note notes a value at an offset, which must be what is known of the offset.
func (f *faults) note(what string, known map[kafka.Offset]string, offset kafka.Offset, value string) {
	f.seen.Lock()
	defer f.seen.Unlock()
	if was, ok := known[offset]; ok && was != value {
		f.t.Errorf("%s at %d: %s, and before %s", what, offset, value, was)
	}
	known[offset] = value
}

// look reads what every broker serves to consumers, followers too.
func (f *faults) look() {
	for id, n := range f.nodes {
		p := n.applier.Table.Get(faultTopic, 0)
		if f.down[id] != nil || p == nil {
			continue
		}
		from := kafka.Offset(f.random.Int64N(int64(p.Log().LogEndOffset()) + 1))
		r, err := p.Read(partition.ReadOptions{
			From: from, MaxBytes: 500, MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch, Source: partition.FollowerToo, Now: time.Now(),
		})
		if err != nil {
			continue
		}
		data, err := r.Chunk.AppendTo(nil)
		r.Chunk.Release()
		f.must(err)
		for offset, value := range valuesOf(f.t, data) {
			f.note(fmt.Sprint("read from ", id), f.read, offset, value)
		}
	}
}

// trim deletes the oldest records at the leader.
func (f *faults) trim() {
	leader := f.partition().Leader
	if leader == kafka.NoBroker || f.down[leader] != nil {
		return
	}
	p := f.at(leader, faultTopic, 0)
	if p.Settled() == nil {
		f.must(p.Log().DeleteRecords(p.HighWatermark() - kafka.Offset(f.random.Int64N(int64(p.HighWatermark())+1))))
	}
}

// fence takes a broker out of the ISR, unless it is the last member, and has another
// member lead.
func (f *faults) fence(id kafka.BrokerID) {
	f.change(faultTopic, 0, func(p *metadata.Partition) {
		if len(p.ISR) > 1 {
			p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(m kafka.BrokerID) bool { return m == id })
		}
		if p.Leader != id {
			return
		}
		p.Leader = kafka.NoBroker
		p.LeaderEpoch++
		for _, m := range p.ISR {
			if f.down[m] == nil && !f.deaf[m] && m != id {
				p.Leader = m
				return
			}
		}
	})
}

func (f *faults) kill(id kafka.BrokerID) {
	if f.down[id] != nil {
		return
	}
	f.down[id] = f.crash(id, f.random.IntN(101))
	f.fence(id)
}

func (f *faults) revive(id kafka.BrokerID) {
	disk := f.down[id]
	if disk == nil {
		return
	}
	if f.random.IntN(4) == 0 && !slices.Contains(f.members(faultTopic, 0), id) {
		disk = memfs.New() // The old one broke.
	}
	f.maybeRot(id, disk)
	delete(f.down, id)
	f.restart(id, disk)
	f.electIfNone()
}

// maybeRot flips a bit of a replica that is not in sync, once in a run: the others have
// what it spoils.
func (f *faults) maybeRot(id kafka.BrokerID, disk *memfs.FS) {
	if f.rotten || f.random.IntN(3) > 0 || slices.Contains(f.members(faultTopic, 0), id) {
		return
	}
	dir := commitlog.LogDir(kafka.TopicIDPartition{ID: f.state.Image().Topic(faultTopic).ID})
	entries, err := disk.ReadDir(dir)
	if err != nil {
		return // A new disk.
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		file, err := disk.Open(dir+"/"+e.Name(), vfs.ReadWrite)
		f.must(err)
		if size, err := file.Size(); err == nil && size > 0 {
			at, b := f.random.Int64N(size), make([]byte, 1)
			_, _ = file.ReadAt(b, at)
			b[0] ^= 1 << f.random.IntN(8)
			_, _ = file.WriteAt(b, at)
			f.rotten = true
		}
		f.must(errors.Join(file.Sync(), file.Close()))
	}
}

// mended waits until no replica has damage that a reader finds.
func (f *faults) mended() {
	for range 60 {
		sound := true
		for id := kafka.BrokerID(1); id <= 3; id++ {
			_, err := f.readAll(id, faultTopic)
			sound = sound && err == nil && !f.at(id, faultTopic, 0).Damaged()
		}
		if sound && len(f.partition().ISR) == 3 {
			return
		}
		<-time.After(time.Second)
	}
	f.t.Error("a damaged replica is not mended")
}

// electIfNone has a member of the ISR lead a partition that nobody leads.
func (f *faults) electIfNone() {
	p := f.partition()
	if p.Leader != kafka.NoBroker {
		return
	}
	for _, m := range p.ISR {
		if f.down[m] == nil && !f.deaf[m] {
			f.elect(faultTopic, 0, m, p.ISR...)
			return
		}
	}
}

func (f *faults) mend(id, other kafka.BrokerID) {
	if f.cut[pair(id, other)] {
		delete(f.cut, pair(id, other))
		f.network.Heal(host(id), host(other))
	}
}

// deafen cuts a broker off the controller, which fences it; it may go on as a zombie.
func (f *faults) deafen(id kafka.BrokerID) {
	if f.down[id] != nil || f.deaf[id] {
		return
	}
	f.mu.Lock()
	f.deaf[id] = true
	f.mu.Unlock()
	f.fence(id)
}

func (f *faults) listen(id kafka.BrokerID) {
	if f.down[id] == nil && f.deaf[id] {
		f.hear(id)
		f.electIfNone()
	}
}

// prefer moves leadership to a member of the ISR for no reason.
func (f *faults) prefer(id kafka.BrokerID) {
	p := f.partition()
	if f.down[id] == nil && !f.deaf[id] && slices.Contains(p.ISR, id) && p.Leader != id {
		f.elect(faultTopic, 0, id, p.ISR...)
	}
}

// heal undoes everything and waits until all are in sync.
func (f *faults) heal() {
	f.mu.Lock()
	f.away = false
	f.mu.Unlock()
	for id := kafka.BrokerID(1); id <= 3; id++ {
		f.mend(id, id%3+1)
		f.listen(id)
		f.revive(id)
	}
	<-time.After(45 * time.Second) // Until the last request that lost its answer has ended.
	for range 120 {
		if len(f.partition().ISR) == 3 {
			break
		}
		<-time.After(time.Second)
	}
	f.clients.Wait()
	f.mended()
	leader := f.partition().Leader
	f.acked(leader, faultTopic, 0, f.produce(leader, faultTopic, 0, "last"))
	if got := f.members(faultTopic, 0); len(got) != 3 {
		f.t.Errorf("in sync in the end: %v", got)
	}
}

// check compares what was promised and seen with what is there.
func (f *faults) check() {
	f.same(faultTopic, 0, 1, 2, 3)
	start := f.logStart(faultTopic, 0, 1, 2, 3)
	stored := map[kafka.Offset]string{}
	times := map[string]int{}
	for offset, value := range valuesOf(f.t, f.bytesOf(1, faultTopic, 0, start)) {
		stored[offset] = value
		times[value]++
	}
	for what, known := range map[string]map[kafka.Offset]string{"acknowledged": f.promised, "read": f.read} {
		for offset, value := range known {
			if offset >= start && stored[offset] != value {
				f.t.Errorf("%s at %d: %s, and in the end %q is there", what, offset, value, stored[offset])
			}
		}
	}
	for value, n := range times {
		if n > 1 {
			f.t.Errorf("%s is there %d times", value, n)
		}
	}
	f.t.Logf("%d written, %d acknowledged, %d read, %d stored from %d on, leader epoch %d, %d confirmed and %d not",
		f.written, len(f.promised), len(f.read), len(stored), start, f.partition().LeaderEpoch, f.confirmed, f.unconfirmed)
	if len(f.promised) == 0 {
		f.t.Error("nothing was acknowledged: the run shows nothing")
	}
}

// TestLogGoesOffline: a log that takes nothing more until a restart is of no use as a
// leader's, and as a follower's it would hold up all acknowledgements. Its broker runs, so
// that nobody else notices: the replica asks to be out, and others go on soon.
func TestLogGoesOffline(t *testing.T) {
	for name, victim := range map[string]kafka.BrokerID{"the leader's": 1, "a follower's": 2} {
		t.Run(name, func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				w.create("orders", 1, 1, 2, 3)
				w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
				w.nodes[victim].faulty.SetInjector(logsFail)
				if _, err := w.at(1, "orders", 0).Append(batch(t, "b"), partition.AcksAll, time.Now()); (err == nil) != (victim == 2) {
					t.Errorf("an append: %v", err)
				}
				began := time.Now()
				for slices.Contains(w.members("orders", 0), victim) && time.Since(began) < maxLag {
					<-time.After(time.Millisecond)
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("it is in sync for %v", took)
				}
				leader := w.leads("orders", 0)
				if took := w.acked(leader, "orders", 0, w.produce(leader, "orders", 0, "c")); took > 50*time.Millisecond {
					t.Errorf("the next record took %v", took)
				}
				<-time.After(5 * time.Second)
				if got := w.members("orders", 0); len(got) != 2 || slices.Contains(got, victim) {
					t.Errorf("in sync: %v", got)
				}
				disk := w.crash(victim, 100)
				w.restart(victim, disk)
				w.same("orders", 0, 1, 2, 3)
			})
		})
	}
}

// logsFail is a disk on which logs take no write, nor can one be undone.
func logsFail(o errorfs.Op) error {
	if (o.Kind == errorfs.Write || o.Kind == errorfs.Truncate) && strings.HasSuffix(o.Name, ".log") {
		return syscall.EIO
	}
	return nil
}

// TestElectedWithItsLogOffline: a replica whose log has failed is elected before its wish to
// be out is heard. All others wait for it to lead, so that it has to resign under the epoch
// that it was elected for.
func TestElectedWithItsLogOffline(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.isAway(true)
		w.nodes[2].faulty.SetInjector(logsFail)
		w.produce(1, "orders", 0, "b")
		<-time.After(time.Second)
		if !w.at(2, "orders", 0).Damaged() {
			t.Error("its log has not failed")
		}
		w.elect("orders", 0, 2, 2, 3)
		w.isAway(false)
		<-time.After(5 * time.Second)
		if leader, members := w.leads("orders", 0), w.members("orders", 0); leader != 3 || slices.Contains(members, 2) {
			t.Errorf("broker %d leads, in sync: %v", leader, members)
			return
		}
		w.acked(3, "orders", 0, w.produce(3, "orders", 0, "c"))
		w.same("orders", 0, 1, 3)
	})
}
