package wire

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestUnusedBlocksAreGivenBack is internal: what the pool keeps shows only in
// the process' memory.
func TestUnusedBlocksAreGivenBack(t *testing.T) {
	var (
		p blockPool
		h holder
	)
	p.budget.setLimit(1 << 30)
	take := func(sizes ...int) []*block {
		var blocks []*block
		for _, size := range sizes {
			b, err := p.get(size, size, &h, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.data[size-1] = 1
			blocks = append(blocks, b)
		}
		return blocks
	}
	release := func(blocks []*block) {
		for _, b := range blocks {
			b.release()
		}
	}
	release(take(100, 70_000, 1<<20, 1<<20, 8<<20, 64<<20))
	if p.freeBytes != 16<<10+128<<10+2<<20+8<<20 {
		t.Errorf("%d bytes are kept", p.freeBytes)
	}
	p.trim() // Everything was in use since the beginning.
	release(take(100, 1<<20))
	if freed := p.trim(); freed != 128<<10+1<<20+8<<20 {
		t.Errorf("%d bytes were given back", freed)
	}
	p.close()
	if p.freeBytes != 0 || p.budget.used.Load() != 0 {
		t.Errorf("%d bytes are kept, %d in use", p.freeBytes, p.budget.used.Load())
	}
	var many []int
	for range 40 {
		many = append(many, 1<<20)
	}
	release(take(many...))
	if p.freeBytes > keptBlockBytes {
		t.Errorf("%d bytes are kept", p.freeBytes)
	}
	p.close()
}

func TestReleasingABlockTwicePanics(t *testing.T) {
	var (
		p blockPool
		h holder
	)
	p.budget.setLimit(1 << 30)
	b, err := p.get(1, 1, &h, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.release()
}

// TestBudgetAlwaysMakesProgress lets many takers, some of whom give up, need more
// than there is.
func TestBudgetAlwaysMakesProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			b     budget
			hosts [3]holder
		)
		limit := rapid.Int64Range(1, 100).Draw(t, "limit")
		b.setLimit(limit)
		steps := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 200), 1, 5), 1, 8).Draw(t, "steps")
		quitters := rapid.SliceOfN(rapid.Bool(), len(steps), len(steps)).Draw(t, "quitters")
		quit := make(chan struct{})
		var all sync.WaitGroup
		for i, mine := range steps {
			all.Go(func() {
				s := share{holder: &hosts[i%len(hosts)]}
				var stop <-chan struct{}
				if quitters[i] {
					stop = quit
				}
				for _, n := range mine {
					if !b.extend(&s, n, stop) {
						break
					}
				}
				b.giveShare(&s)
			})
		}
		close(quit)
		all.Wait()
		if b.used.Load() != 0 || b.waiting.Load() != 0 || b.overdraw.Load() != nil {
			t.Fatalf("left: used %d, waiting %d", b.used.Load(), b.waiting.Load())
		}
	})
}
