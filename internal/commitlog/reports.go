package commitlog

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// reports keeps what went wrong with stored data from being told again and again,
// and what is corrupt for whoever asks.
type reports struct {
	mu      sync.Mutex
	corrupt []Corruption
	reads   map[kafka.TopicIDPartition]time.Time // When a failed read was reported last.
	full    time.Time                            // When a full disk was.

	noRoom atomic.Bool // An append was refused, and there was no room since.
}

// Corruption is damage that was found.
type Corruption struct {
	ID       kafka.TopicIDPartition
	Found    *CorruptionError
	Since    time.Time
	reported time.Time
}

const (
	// reportEvery is how often one thing is reported.
	reportEvery = time.Minute
	// maxCorruptions bounds what is remembered; the oldest is forgotten first.
	maxCorruptions = 1000
)

// reportCorrupt tells of damage, unless it did a moment ago.
func (e *env) reportCorrupt(id kafka.TopicIDPartition, err *CorruptionError) {
	if e.reports.isNews(id, err) {
		e.events.Corrupt(id, err)
	}
}

func (r *reports) isNews(id kafka.TopicIDPartition, err *CorruptionError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	i := slices.IndexFunc(r.corrupt, func(c Corruption) bool {
		return c.ID == id && c.Found.Path == err.Path && c.Found.Position == err.Position
	})
	if i >= 0 {
		if now.Sub(r.corrupt[i].reported) < reportEvery {
			return false
		}
		r.corrupt[i].Found, r.corrupt[i].reported = err, now
		return true
	}
	if len(r.corrupt) == maxCorruptions {
		r.corrupt = slices.Delete(r.corrupt, 0, 1)
	}
	r.corrupt = append(r.corrupt, Corruption{id, err, now, now})
	return true
}

// forget drops the damage of files that are gone.
func (r *reports) forget(gone func(Corruption) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.corrupt = slices.DeleteFunc(r.corrupt, gone)
}

// reportRead tells of a read that failed.
func (l *Log) reportRead(err error) {
	var corrupt *CorruptionError
	if errors.As(err, &corrupt) {
		l.reportCorrupt(corrupt)
		return
	}
	r := &l.env.reports
	r.mu.Lock()
	now := time.Now()
	news := now.Sub(r.reads[l.id]) >= reportEvery
	if news {
		if r.reads == nil || len(r.reads) >= maxCorruptions {
			r.reads = map[kafka.TopicIDPartition]time.Time{}
		}
		r.reads[l.id] = now
	}
	r.mu.Unlock()
	if news {
		l.env.events.ReadFailed(l.id, err)
	}
}

// reportRefused tells of an append that the storage refused, if it is news: one
// line a minute says of a full disk what it says of each partition.
func (l *Log) reportRefused(err error) {
	var corrupt *CorruptionError
	switch {
	case errors.As(err, &corrupt):
		l.reportCorrupt(corrupt)
	case vfs.IsFull(err):
		if !l.env.reports.noRoom.Swap(true) && l.env.onFull != nil {
			l.env.onFull()
		}
		if l.env.reports.isFullNews() {
			l.env.events.DiskFull(l.id, err)
		}
	}
}

// minRoom is what has to be free until a disk that was full passes for one that is not:
// else the next append might be refused again.
const minRoom = 64 << 20

// Full reports whether the disk has refused an append, of a leader or of a follower, and
// has had no room to speak of since.
func (d *Dir) Full() bool {
	r := &d.env.reports
	if !r.noRoom.Load() {
		return false
	}
	if free, _, err := d.fs.Usage(); err == nil && free >= minRoom {
		r.noRoom.Store(false)
		return false
	}
	return true
}

func (r *reports) isFullNews() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.full) < reportEvery {
		return false
	}
	r.full = now
	return true
}

// Corruptions returns the damage that was found and not deleted since, oldest
// first.
func (d *Dir) Corruptions() []Corruption {
	r := &d.env.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.corrupt)
}
