package coordinator_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// filled returns a partition with n committed records k0..., in batches of two.
func filled(n int) *fakePartition {
	p := &fakePartition{}
	b := record.NewBuilder(record.CodecNone, 0)
	for i := 0; i < n; i += 2 {
		b.Append(1, fmt.Appendf(nil, "k%d", i), []byte("v"), nil)
		b.Append(1, fmt.Appendf(nil, "k%d", i+1), []byte("v"), nil)
		p.add(b.Build())
	}
	p.commit()
	return p
}

// add appends a batch that is not a coordinator's.
func (p *fakePartition) add(data []byte) {
	batch, _, err := record.Next(data)
	if err != nil {
		panic(err)
	}
	if _, err := p.Append([]record.Batch{batch}, time.Time{}); err != nil {
		panic(err)
	}
}

// try runs an empty step, to see whether the shard is there.
func (b *bench) try() error { return b.Do(3, func(*register, int64, *shard.Effects) {}) }

func TestLoads(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(1000)
		b.Lead(3, p)
		synctest.Wait()
		if got := b.values(); len(got) != 1000 {
			t.Fatalf("%d values", len(got))
		}
		_ = b.View(func(partition int32, m *register) {
			if partition != 3 || m.loadedMs != time.Now().UnixMilli() {
				t.Errorf("partition %d loaded at %d", partition, m.loadedMs)
			}
			for i, offset := range m.offsets {
				if offset != kafka.Offset(i) {
					t.Fatalf("record %d has offset %d", i, offset)
				}
			}
		})
		b.p = p
		b.mustPut("a", "k0", "new")
		p.commit()
		b.expect("a: new")
	})
}

func TestLoadWaitsForHighWatermark(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(4)
		p.set(func(p *fakePartition) { p.highWatermark = 2 })
		b.Lead(3, p)
		synctest.Wait()
		if got := codeOf(t, b.try()); got != kafka.ErrCoordinatorLoadInProgress {
			t.Fatal(got)
		}
		err := b.View(func(int32, *register) { t.Error("a shard that is loading was shown") })
		if err == nil {
			t.Error("View says nothing of the load")
		}
		told := false
		b.Notify(func(m *register) { told = m.loadedMs > 0 })
		if told {
			t.Error("a shard that is loading was told the news")
		}
		p.commit()
		synctest.Wait()
		if !told {
			t.Error("the news was forgotten")
		}
		if got := b.values(); len(got) != 4 {
			t.Errorf("%v", got)
		}
	})
}

func TestLoadEndsWithLeadership(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(4)
		p.set(func(p *fakePartition) { p.highWatermark = 0 })
		b.Lead(3, p)
		synctest.Wait()
		b.Resign(3)
		if got := codeOf(t, b.try()); got != kafka.ErrNotCoordinator {
			t.Error(got)
		}
		// The loader is free for others, and a late wake-up harms nobody.
		b.Lead(3, filled(2))
		p.commit()
		synctest.Wait()
		if got := b.values(); len(got) != 2 {
			t.Errorf("%v", got)
		}
	})
}

// TestDroppedBeforeItsLoad: a host that was dropped while it waited to be loaded makes no
// machine: what comes with one, such as where it hands in what others are to do, is by then
// the next host's.
func TestDroppedBeforeItsLoad(t *testing.T) {
	var made atomic.Int32
	change := func(o *coordinator.Options[*register]) {
		o.Loaders = 1
		o.New = func(n int32) *register {
			if n == 3 {
				made.Add(1)
			}
			return newRegister(n)
		}
	}
	inBubble(t, change, func(b *bench) {
		failing := filled(2)
		failing.set(func(p *fakePartition) { p.readErr = errDiskFull })
		b.Lead(4, failing) // Which the loader tries again later.
		synctest.Wait()
		before := made.Load()
		b.Lead(3, filled(4))
		b.Lead(3, filled(2))
		failing.set(func(p *fakePartition) { p.readErr = nil })
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := b.values(); len(got) != 2 {
			t.Errorf("%v", got)
		}
		if n := made.Load() - before; n != 1 {
			t.Errorf("%d machines were made for one host", n)
		}
	})
}

// TestWaitingLoads: a load that waits for the high watermark, because too few replicas are
// left, holds up no other, and goes on where it was.
func TestWaitingLoads(t *testing.T) {
	for _, loaders := range []int{1, 2} {
		inBubble(t, func(o *coordinator.Options[*register]) { o.Loaders = loaders }, func(b *bench) {
			var waiting []*fakePartition
			for n := range int32(3) {
				p := filled(4)
				p.set(func(p *fakePartition) { p.highWatermark = 2 })
				b.Lead(4+n, p)
				waiting = append(waiting, p)
			}
			synctest.Wait()
			b.Lead(3, filled(6))
			synctest.Wait()
			if err := b.try(); err != nil {
				t.Errorf("with %d loaders: %v", loaders, err)
			}
			for n, p := range waiting {
				if err := b.Do(4+int32(n), func(*register, int64, *shard.Effects) {}); codeOf(t, err) != kafka.ErrCoordinatorLoadInProgress {
					t.Errorf("partition %d, whose end is not committed: %v", 4+n, err)
				}
				p.commit()
			}
			synctest.Wait()
			_ = b.View(func(partition int32, m *register) {
				if want := []kafka.Offset{0, 1, 2, 3}; partition != 3 && !slices.Equal(m.offsets, want) {
					t.Errorf("partition %d has replayed %v", partition, m.offsets)
				}
			})
			if got := b.values(); len(got) != 6 {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestLoadIsTriedAgain(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(2)
		p.set(func(p *fakePartition) { p.readErr = errDiskFull })
		b.Lead(3, p)
		synctest.Wait()
		if got := codeOf(t, b.try()); got != kafka.ErrCoordinatorLoadInProgress {
			t.Error(got)
		}
		p.set(func(p *fakePartition) { p.readErr = nil })
		<-time.After(time.Second)
		synctest.Wait()
		if got := b.values(); len(got) != 2 {
			t.Errorf("%v", got)
		}
	})
}

// TestLoadSkips: control batches mean nothing to a machine, transactional ones
// cannot be told from aborted ones, and one record that cannot be read must not
// keep the others.
func TestLoadSkips(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(2)
		build := func(key string, set func(*record.Builder)) {
			builder := record.NewBuilder(record.CodecNone, 0)
			set(builder)
			builder.Append(1, []byte(key), []byte("v"), nil)
			p.add(builder.Build())
		}
		build("control", func(b *record.Builder) { b.SetControl() })
		build("transactional", func(b *record.Builder) { b.SetTransactional() })
		build("", func(*record.Builder) {})
		build("last", func(*record.Builder) {})
		p.commit()
		b.Lead(3, p)
		synctest.Wait()
		want := map[string]string{"k0": "v", "k1": "v", "last": "v"}
		if diff := cmp.Diff(want, b.values()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestLoadAfterCompaction: offsets have gaps, and the last ones may be gone.
func TestLoadAfterCompaction(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := filled(6)
		p.set(func(p *fakePartition) { p.log = p.log[1:2] })
		b.Lead(3, p)
		synctest.Wait()
		want := map[string]string{"k2": "v", "k3": "v"}
		if diff := cmp.Diff(want, b.values()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLoadsCompressedBatches(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		p := &fakePartition{}
		builder := record.NewBuilder(record.CodecLZ4, 0)
		builder.Append(1, []byte("k"), []byte("v"), nil)
		p.add(builder.Build())
		p.commit()
		b.Lead(3, p)
		synctest.Wait()
		if got := b.values()["k"]; got != "v" {
			t.Errorf("k = %q", got)
		}
	})
}

func TestManyLoads(t *testing.T) {
	inBubble(t, func(o *coordinator.Options[*register]) { o.Loaders = 3 }, func(b *bench) {
		for i := range int32(50) {
			b.Lead(i, filled(2))
		}
		synctest.Wait()
		shards := 0
		if err := b.View(func(int32, *register) { shards++ }); err != nil || shards != 50 {
			t.Errorf("%d shards, %v", shards, err)
		}
	})
}
