package keyring

import (
	"sync"
	"sync/atomic"
)

// room is how much all rings keep together, and what they had to forget.
type room struct {
	keys               atomic.Int64
	evictedByPartition atomic.Uint64
	evictedByBroker    atomic.Uint64
	making             sync.Mutex // Held by the one who makes room.
}

func (r *room) add(keys int) { r.keys.Add(int64(keys)) }

// Room is how much all rings keep together, and how many keys were forgotten
// before their time: by partitions that had too many, and because all of them
// together had.
type Room struct {
	Keys, Limit                         int
	EvictedByPartition, EvictedByBroker uint64
}

// Room returns that.
func (r *Rings) Room() Room {
	return Room{
		Keys: int(r.room.keys.Load()), Limit: r.limit(),
		EvictedByPartition: r.room.evictedByPartition.Load(), EvictedByBroker: r.room.evictedByBroker.Load(),
	}
}

// limit returns how many keys all rings may keep together; 0 for any number.
func (r *Rings) limit() int {
	if r.options.MaxKeys == nil {
		return 0
	}
	return r.options.MaxKeys()
}

// evictShare is the part of a partition's keys that goes at a time, so that
// looking for the largest partition is paid for by many keys.
const evictShare = 32

// makeRoom has the partitions with the most keys forget their oldest until there
// are no more than may be. It takes the lock of one ring at a time.
func (r *Rings) makeRoom() {
	limit := int64(r.limit())
	if limit == 0 || r.room.keys.Load() <= limit || !r.room.making.TryLock() {
		return // Or somebody else is at it.
	}
	defer r.room.making.Unlock()
	for {
		over := r.room.keys.Load() - limit
		if over <= 0 {
			return
		}
		ring, partition, keys := r.largest()
		if ring == nil {
			return
		}
		ring.mu.Lock()
		evicted := ring.changeLocked(func() int { return ring.table.Evict(partition, keys/evictShare+1) })
		ring.mu.Unlock()
		r.room.evictedByBroker.Add(uint64(evicted))
	}
}

// largest returns the partition with the most keys; a nil ring if there are none.
func (r *Rings) largest() (ring *Ring, partition int32, keys int) {
	r.rings.Range(func(_, v any) bool {
		g := v.(*Ring)
		g.mu.Lock()
		i, n := g.table.Largest()
		g.mu.Unlock()
		if n > keys {
			ring, partition, keys = g, i, n
		}
		return true
	})
	return ring, partition, keys
}
