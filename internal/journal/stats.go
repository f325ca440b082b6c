package journal

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/tally"
)

// Stats are counts since Open.
type Stats struct {
	Rounds        uint64 // All rounds that made something durable.
	JournalWrites uint64 // Frames written and synced.
	JournalBytes  uint64 // Bytes of frames, padding included.
	FileSyncs     uint64 // Logs whose own files a round synced.
	RecycleSyncs  uint64 // Logs whose own files were synced to recycle a file.
	Recycled      uint64 // Files made free again.
	Files         int    // Journal files on disk.
	// How long making a round durable took: the last, and percentiles with an
	// error of at most a quarter.
	LastSync, SyncP50, SyncP99 time.Duration
}

// counters are the live form of Stats.
type counters struct {
	rounds, journalWrites, journalBytes atomic.Uint64
	fileSyncs, recycleSyncs, recycled   atomic.Uint64
	lastSync                            atomic.Int64
	committing                          atomic.Int64 // When the round under way began; see since.
	syncs                               histogram
	syncTimes                           tally.Durations
	roundBytes                          tally.Sizes
}

// note counts a round that was made durable.
func (c *counters) note(r *round, took time.Duration) {
	var bytes int64
	for i := range r.items {
		bytes += int64(r.items[i].bytes)
	}
	c.syncTimes.Add(took)
	c.roundBytes.Add(bytes)
}

// histogram counts durations in buckets of a quarter of a power of two, in
// microseconds.
type histogram [4 * 32]atomic.Uint64

func (h *histogram) add(d time.Duration) {
	h[bucketOf(uint64(max(0, d.Microseconds())))].Add(1)
}

func bucketOf(us uint64) int {
	if us < 4 {
		return int(us)
	}
	exponent := bits.Len64(us) - 3
	return min(4*exponent+int(us>>exponent), len(histogram{})-1)
}

// upperBound returns the largest value of a bucket, in microseconds.
func upperBound(bucket int) uint64 {
	if bucket < 8 {
		return uint64(bucket)
	}
	exponent := bucket/4 - 1
	return uint64(bucket%4+4+1)<<exponent - 1
}

// percentile returns an upper bound of the p-th percentile.
func (h *histogram) percentile(p uint64) time.Duration {
	var total uint64
	for i := range h {
		total += h[i].Load()
	}
	var seen uint64
	for i := range h {
		seen += h[i].Load()
		if seen > 0 && seen*100 >= total*p {
			return time.Duration(upperBound(i)) * time.Microsecond
		}
	}
	return 0
}

// Stats returns the counts so far.
func (j *Journal) Stats() Stats {
	c := &j.counters
	return Stats{
		Rounds:        c.rounds.Load(),
		JournalWrites: c.journalWrites.Load(),
		JournalBytes:  c.journalBytes.Load(),
		FileSyncs:     c.fileSyncs.Load(),
		RecycleSyncs:  c.recycleSyncs.Load(),
		Recycled:      c.recycled.Load(),
		Files:         j.files.count(),
		LastSync:      time.Duration(c.lastSync.Load()),
		SyncP50:       c.syncs.percentile(50),
		SyncP99:       c.syncs.percentile(99),
	}
}

// Committing returns for how long a round has been under way that is not durable yet, zero
// if there is none: a disk that hangs shows so.
func (j *Journal) Committing() time.Duration {
	if at := j.counters.committing.Load(); at != 0 {
		return time.Since(j.born) - time.Duration(at)
	}
	return 0
}

// SyncTimes returns how long making rounds durable took.
func (j *Journal) SyncTimes() tally.Histogram { return j.counters.syncTimes.Read() }

// RoundBytes returns how many bytes of batches rounds made durable.
func (j *Journal) RoundBytes() tally.Histogram { return j.counters.roundBytes.Read() }
