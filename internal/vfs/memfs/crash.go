package memfs

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// CrashClone returns a new FS as the disk would be after power loss at this
// moment. unsyncedPercent is the chance, per block, length and directory
// change, that something not synced survived all the same: 0 leaves only what
// was synced, 100 leaves everything, as after a kill of the process. Equal
// trees and seeds give equal clones. The clone shares no state with f, has no
// locks and keeps f's capacity.
func (f *FS) CrashClone(seed uint64, unsyncedPercent int) *FS {
	f.crash.Lock()
	defer f.crash.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	clone := New()
	c := crash{
		to:      clone,
		rnd:     rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)),
		percent: unsyncedPercent,
		done:    map[node]node{},
	}
	clone.root = c.dir(f.root)
	clone.capacity = f.capacity
	return clone
}

// crash is one CrashClone at work.
type crash struct {
	to      *FS
	rnd     *rand.Rand
	percent int
	done    map[node]node // What was copied: a file may be found under two names.
}

func (c *crash) survives() bool {
	return c.percent >= 100 || c.rnd.IntN(100) < c.percent
}

func (c *crash) dir(d *dir) *dir {
	entries := maps.Clone(d.synced)
	for _, change := range d.pending {
		if !c.survives() {
			break
		}
		change.applyTo(entries)
	}
	copied := newDir()
	c.done[d] = copied
	// In order of name, so that a seed means the same every time.
	for _, base := range slices.Sorted(maps.Keys(entries)) {
		copied.entries[base] = c.node(entries[base])
	}
	copied.synced = maps.Clone(copied.entries)
	return copied
}

func (c *crash) node(n node) node {
	if copied, ok := c.done[n]; ok {
		if f, ok := copied.(*file); ok {
			f.links++
		}
		return copied
	}
	switch n := n.(type) {
	case *dir:
		return c.dir(n)
	case *file:
		copied := c.file(n)
		c.done[n] = copied
		return copied
	default:
		panic("memfs: unknown kind of node")
	}
}

func (c *crash) file(f *file) *file {
	f.mu.RLock()
	defer f.mu.RUnlock()
	copied := &file{fs: c.to, links: 1, modTime: time.Time{}}
	copied.size = c.size(f)
	copied.blocks = make([]*block, blockCount(copied.size))
	for i := range copied.blocks {
		var current, synced *block
		if i < len(f.blocks) {
			current = f.blocks[i]
		}
		if i < len(f.synced) {
			synced = f.synced[i]
		}
		survivor := synced
		if current != synced && c.survives() {
			survivor = current
		}
		if survivor == nil {
			continue
		}
		b := *survivor
		if i == len(copied.blocks)-1 && copied.size%BlockSize != 0 {
			clear(b[copied.size%BlockSize:])
		}
		copied.blocks[i] = &b
		copied.filled++
	}
	copied.synced = slices.Clone(copied.blocks)
	copied.syncedSize = copied.size
	copied.dirtyFrom = len(copied.blocks)
	if copied.reserved = f.syncedReserved; c.percent >= 100 {
		copied.reserved = f.reserved
	}
	copied.syncedReserved = copied.reserved
	c.to.used += max(copied.filled, copied.reserved) * BlockSize
	return copied
}

// size picks the length that survives.
func (c *crash) size(f *file) int64 {
	switch {
	case c.percent >= 100:
		return f.size
	case f.size == f.syncedSize || !c.survives():
		return f.syncedSize
	case f.size < f.syncedSize || c.rnd.IntN(2) == 0:
		return f.size
	default:
		return f.syncedSize + 1 + c.rnd.Int64N(f.size-f.syncedSize)
	}
}
