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
// was synced. 100 is a kill of the process: everything is there, and what was
// not synced still is not, for a CrashClone of the clone. Equal trees and seeds
// give equal clones. The clone shares no state with f, has no locks and keeps
// f's capacity.
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
	return c.rnd.IntN(100) < c.percent
}

func (c *crash) killed() bool { return c.percent >= 100 }

func (c *crash) dir(d *dir) *dir {
	entries := d.entries
	if !c.killed() {
		entries = maps.Clone(d.synced)
		for _, change := range d.pending {
			if !c.survives() {
				break
			}
			change.applyTo(entries)
		}
	}
	copied := newDir()
	c.done[d] = copied
	copied.entries = c.nodes(entries)
	for _, n := range copied.entries {
		if f, ok := n.(*file); ok {
			f.linked()
		}
	}
	if !c.killed() {
		copied.synced = maps.Clone(copied.entries)
		return copied
	}
	copied.synced = c.nodes(d.synced)
	for _, p := range d.pending {
		copied.pending = append(copied.pending, change{c.nodes(p.set), p.remove})
	}
	return copied
}

// nodes copies in order of name, so that a seed means the same every time.
func (c *crash) nodes(entries map[string]node) map[string]node {
	copied := map[string]node{}
	for _, base := range slices.Sorted(maps.Keys(entries)) {
		copied[base] = c.node(entries[base])
	}
	return copied
}

func (c *crash) node(n node) node {
	if copied, ok := c.done[n]; ok {
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
	if c.killed() {
		return f.killed(c.to)
	}
	copied := &file{fs: c.to, modTime: time.Time{}}
	copied.size = c.size(f)
	copied.synced = make([]*block, blockCount(copied.size))
	for i := range copied.synced {
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
		copied.synced[i] = &b
		copied.filled++
	}
	copied.blocks = slices.Clone(copied.synced)
	copied.syncedSize = copied.size
	copied.dirtyFrom = len(copied.blocks)
	copied.hideBehindEnd()
	copied.reserved, copied.syncedReserved = f.syncedReserved, f.syncedReserved
	return copied
}

// hideBehindEnd gives a process zeros where the last block has other bytes behind
// the file's length. On the disk they stay until the block is written again: a
// crash that keeps a later length, and not that write, brings them back.
func (f *file) hideBehindEnd() {
	n, within := len(f.blocks), f.size%BlockSize
	if n == 0 || within == 0 || f.blocks[n-1] == nil {
		return
	}
	b := *f.blocks[n-1]
	clear(b[within:])
	if b != *f.blocks[n-1] {
		f.blocks[n-1] = &b
	}
}

// killed returns a copy in which what was not synced still is not.
func (f *file) killed(to *FS) *file {
	copied := &file{
		fs: to, size: f.size, syncedSize: f.syncedSize, dirtyFrom: f.dirtyFrom,
		filled: f.filled, reserved: f.reserved, syncedReserved: f.syncedReserved,
		blocks: make([]*block, len(f.blocks)), synced: make([]*block, len(f.synced)),
	}
	for i, b := range f.synced {
		if b != nil {
			c := *b
			copied.synced[i] = &c
		}
	}
	for i, b := range f.blocks {
		switch {
		case b == nil:
		case i < len(f.synced) && f.synced[i] == b:
			copied.blocks[i] = copied.synced[i]
		default:
			c := *b
			copied.blocks[i] = &c
		}
	}
	return copied
}

// linked counts a directory entry of a copy.
func (f *file) linked() {
	if f.links++; f.links == 1 {
		f.fs.used += max(f.filled, f.reserved) * BlockSize
	}
}

// size picks the length that survives.
func (c *crash) size(f *file) int64 {
	switch {
	case f.size == f.syncedSize || !c.survives():
		return f.syncedSize
	case f.size < f.syncedSize || c.rnd.IntN(2) == 0:
		return f.size
	default:
		return f.syncedSize + 1 + c.rnd.Int64N(f.size-f.syncedSize)
	}
}
