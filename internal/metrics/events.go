package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Events count what happens rarely. The zero value is ready for use; its methods
// may be called from any goroutine.
type Events struct {
	recovered, tornBytes, segmentsDeleted   atomic.Uint64
	corruptions, mended, failures, problems atomic.Uint64
	alarms, diskFull, readFailures          atomic.Uint64
	cleaned, cleanFailed, uncleanable       atomic.Uint64
	reclaimedBytes                          atomic.Uint64
	isrShrinks, isrExpansions               atomic.Uint64
	electedClean, electedUnclean            atomic.Uint64
}

// Storage returns events of storage that are counted and passed on.
func (e *Events) Storage(next commitlog.Events) commitlog.Events { return storageEvents{e, next} }

type storageEvents struct {
	*Events
	next commitlog.Events
}

// Recovered implements commitlog.Events.
func (e storageEvents) Recovered(r commitlog.RecoveredLog) {
	e.recovered.Add(1)
	e.tornBytes.Add(uint64(max(r.BytesCut, 0)))
	e.next.Recovered(r)
}

// Corrupt implements commitlog.Events.
func (e storageEvents) Corrupt(id kafka.TopicIDPartition, err *commitlog.CorruptionError) {
	e.corruptions.Add(1)
	e.next.Corrupt(id, err)
}

// Mended implements commitlog.Events.
func (e storageEvents) Mended(id kafka.TopicIDPartition, m commitlog.MendedHole) {
	e.mended.Add(1)
	e.next.Mended(id, m)
}

// Deleted implements commitlog.Events.
func (e storageEvents) Deleted(id kafka.TopicIDPartition, segments int, logStart kafka.Offset) {
	e.segmentsDeleted.Add(uint64(max(segments, 0)))
	e.next.Deleted(id, segments, logStart)
}

// Failed implements commitlog.Events.
func (e storageEvents) Failed(id kafka.TopicIDPartition, err error) {
	e.failures.Add(1)
	e.next.Failed(id, err)
}

// DiskFull implements commitlog.Events.
func (e storageEvents) DiskFull(id kafka.TopicIDPartition, err error) {
	e.diskFull.Add(1)
	e.next.DiskFull(id, err)
}

// ReadFailed implements commitlog.Events.
func (e storageEvents) ReadFailed(id kafka.TopicIDPartition, err error) {
	e.readFailures.Add(1)
	e.next.ReadFailed(id, err)
}

// Alarm implements commitlog.Events.
func (e storageEvents) Alarm(what string, err error) {
	e.alarms.Add(1)
	e.next.Alarm(what, err)
}

// Problem implements commitlog.Events.
func (e storageEvents) Problem(what string, err error) {
	e.problems.Add(1)
	e.next.Problem(what, err)
}

// Cleaner returns events of the cleaner that are counted and passed on.
func (e *Events) Cleaner(next cleaner.Events) cleaner.Events { return cleanerEvents{e, next} }

type cleanerEvents struct {
	*Events
	next cleaner.Events
}

// Cleaned implements cleaner.Events.
func (e cleanerEvents) Cleaned(id kafka.TopicIDPartition, s cleaner.Stats) {
	e.cleaned.Add(1)
	e.reclaimedBytes.Add(uint64(max(s.BytesBefore-s.BytesAfter, 0)))
	e.next.Cleaned(id, s)
}

// Uncleanable implements cleaner.Events.
func (e cleanerEvents) Uncleanable(id kafka.TopicIDPartition, err error) {
	e.uncleanable.Add(1)
	e.next.Uncleanable(id, err)
}

// Failed implements cleaner.Events.
func (e cleanerEvents) Failed(id kafka.TopicIDPartition, err error) {
	e.cleanFailed.Add(1)
	e.next.Failed(id, err)
}

// Follow counts the changes of in-sync replicas in a change of the metadata, of
// partitions that self leads, and the elections that self has won.
func (e *Events) Follow(self kafka.BrokerID, d metadata.Delta) {
	for _, c := range d.Topics {
		if c.Old == nil || c.New == nil {
			continue
		}
		for i := range min(len(c.Old.Partitions), len(c.New.Partitions)) {
			before, after := &c.Old.Partitions[i], &c.New.Partitions[i]
			if after.Leader == self {
				e.noteISR(before.ISR, after.ISR)
				e.noteElection(before, after)
			}
		}
	}
}

func (e *Events) noteElection(before, after *metadata.Partition) {
	switch {
	case after.ElectedUnclean(before):
		e.electedUnclean.Add(1)
	case after.LeaderEpoch != before.LeaderEpoch && after.Leader != before.Leader:
		e.electedClean.Add(1)
	}
}

func (e *Events) noteISR(before, after []kafka.BrokerID) {
	missing := func(from, in []kafka.BrokerID) bool {
		return slices.ContainsFunc(from, func(id kafka.BrokerID) bool { return !slices.Contains(in, id) })
	}
	if missing(before, after) {
		e.isrShrinks.Add(1)
	}
	if missing(after, before) {
		e.isrExpansions.Add(1)
	}
}

func (e *Events) collect(to *scrape) {
	to.counter("strandline_storage_logs_recovered_total", float64(e.recovered.Load()))
	to.counter("strandline_storage_torn_bytes_total", float64(e.tornBytes.Load()))
	to.counter("strandline_storage_segments_deleted_total", float64(e.segmentsDeleted.Load()))
	to.counter("strandline_storage_corruptions_total", float64(e.corruptions.Load()))
	to.counter("strandline_storage_mended_total", float64(e.mended.Load()))
	to.counter("strandline_storage_failures_total", float64(e.failures.Load()))
	to.counter("strandline_storage_read_failures_total", float64(e.readFailures.Load()))
	to.counter("strandline_storage_disk_full_total", float64(e.diskFull.Load()))
	to.counter("strandline_storage_alarms_total", float64(e.alarms.Load()))
	to.counter("strandline_storage_problems_total", float64(e.problems.Load()))
	to.counter("strandline_leader_elections_total", float64(e.electedClean.Load()), "kind", "clean")
	to.counter("strandline_leader_elections_total", float64(e.electedUnclean.Load()), "kind", "unclean")
	to.counter("strandline_cleaner_passes_total", float64(e.cleaned.Load()), "outcome", "done")
	to.counter("strandline_cleaner_passes_total", float64(e.cleanFailed.Load()), "outcome", "failed")
	to.counter("strandline_cleaner_passes_total", float64(e.uncleanable.Load()), "outcome", "refused")
	to.counter("strandline_cleaner_reclaimed_bytes_total", float64(e.reclaimedBytes.Load()))
}
