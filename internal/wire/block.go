package wire

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Sizes of blocks. Small ones live in the Go heap. Large ones are mapped: the
// kernel gives them memory page by page as bytes arrive, so a client that
// announces 100 MiB and sends none costs none; the garbage collector neither
// zeroes them nor counts them; and unmapping returns memory at once.
const (
	smallBlockShift = 14
	smallBlockBytes = 1 << smallBlockShift
	heapBlockShift  = 16 // Up to here blocks are made by the Go heap.
	keptBlockShift  = 23 // Up to here blocks are kept for the next frame.
	blockClasses    = keptBlockShift - smallBlockShift + 1
	// keptBlockBytes bounds what is kept free for the next frames.
	keptBlockBytes = 24 << 20
)

// block is memory that requests are read into. It is shared by the read loop
// that fills it and by every Request whose body lies in it, and goes back to its
// pool when the last of them releases it.
type block struct {
	data   []byte
	refs   atomic.Int32
	pool   *blockPool
	class  int8 // -1: of no class, not kept.
	mapped bool
	share  share // Of the budget. Invariant: nothing is read into data behind it.
}

func (b *block) retain() { b.refs.Add(1) }

func (b *block) release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b)
	case n < 0:
		panic("wire: a request's memory was released twice")
	}
}

// uncharge gives the block's share of the budget back before the block itself.
func (b *block) uncharge() {
	b.pool.budget.giveShare(&b.share)
}

// blockPool keeps blocks for the next frames, a free list per class.
type blockPool struct {
	budget budget

	mu        sync.Mutex
	free      [blockClasses][]*block
	freeBytes int64 // Invariant: the sum of free, <= keptBlockBytes.
	// spare is the least number of blocks that were free at any time since the
	// last trim: nobody needed them.
	spare [blockClasses]int
}

// blockClass returns the class for n bytes and its size; -1 for one of its own.
func blockClass(n int) (class int8, size int) {
	if n <= smallBlockBytes {
		return 0, smallBlockBytes
	}
	shift := bits.Len(uint(n - 1))
	if shift > keptBlockShift {
		const page = 4096
		return -1, (n + page - 1) &^ (page - 1)
	}
	return int8(shift - smallBlockShift), 1 << shift
}

// get returns a block of at least n bytes with one reference, of which only the
// first charge bytes, of h's, may be written to before extend. It waits for the
// budget, and returns nil if quit is closed first.
func (p *blockPool) get(n, charge int, h *holder, quit <-chan struct{}) (*block, error) {
	s := share{holder: h}
	if !p.budget.extend(&s, int64(charge), quit) {
		return nil, nil
	}
	return p.charged(n, s)
}

// tryGet is get without waiting: it returns nil if the budget is used up.
func (p *blockPool) tryGet(n, charge int, h *holder) (*block, error) {
	s := share{holder: h}
	if !p.budget.extendNow(&s, int64(charge)) {
		return nil, nil
	}
	return p.charged(n, s)
}

// charged returns a block of at least n bytes for a share that was taken.
func (p *blockPool) charged(n int, s share) (*block, error) {
	class, size := blockClass(n)
	b := p.takeFree(class)
	if b == nil {
		var err error
		if b, err = p.makeBlock(class, size); err != nil {
			unused := s
			p.budget.giveShare(&unused)
			return nil, err
		}
	}
	b.share = s
	b.refs.Store(1)
	return b, nil
}

func (p *blockPool) takeFree(class int8) *block {
	if class < 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.free[class]
	n := len(list) - 1
	if n < 0 {
		return nil
	}
	b := list[n]
	list[n] = nil
	p.free[class] = list[:n]
	p.freeBytes -= int64(len(b.data))
	p.spare[class] = min(p.spare[class], n)
	return b
}

func (p *blockPool) makeBlock(class int8, size int) (*block, error) {
	b := &block{pool: p, class: class}
	if size <= 1<<heapBlockShift || raceEnabled {
		b.data = make([]byte, size)
		return b, nil
	}
	data, err := unix.Mmap(-1, 0, size,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for a request: %w", size, err)
	}
	b.data, b.mapped = data, true
	return b, nil
}

func (p *blockPool) put(b *block) {
	p.budget.giveShare(&b.share)
	p.mu.Lock()
	keep := b.class >= 0 && p.freeBytes+int64(len(b.data)) <= keptBlockBytes
	if keep {
		p.free[b.class] = append(p.free[b.class], b)
		p.freeBytes += int64(len(b.data))
	}
	p.mu.Unlock()
	if !keep {
		b.unmap()
	}
}

// trim gives blocks that nobody needed since the last trim back to the system,
// and returns how many bytes that were.
func (p *blockPool) trim() int64 {
	p.mu.Lock()
	var drop []*block
	for class := range p.free {
		list := p.free[class]
		keep := len(list) - min(p.spare[class], len(list))
		drop = append(drop, list[keep:]...)
		clear(list[keep:])
		p.free[class] = list[:keep]
		p.spare[class] = keep
	}
	var bytes int64
	for _, b := range drop {
		bytes += int64(len(b.data))
	}
	p.freeBytes -= bytes
	p.mu.Unlock()
	for _, b := range drop {
		b.unmap()
	}
	return bytes
}

// unmap returns the block's memory to the system.
func (b *block) unmap() {
	if b.mapped {
		if err := unix.Munmap(b.data); err != nil {
			panic("wire: unmap a block: " + err.Error()) // Only a wrong address can fail.
		}
	}
	b.data = nil
}

// close unmaps what is kept. Blocks that come back later are kept as ever.
func (p *blockPool) close() {
	p.trim() // Everything that is free now is spare from here on.
	p.trim()
}
