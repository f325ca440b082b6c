package journal

import (
	"cmp"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Run is a range of offsets whose appends the journal holds: [Base, End).
type Run struct{ Base, End kafka.Offset }

// Coverage is what the journal knows of one log. Everything below End was
// durable: what a log lacks below it was lost, and was no torn tail.
//
//	Invariant: runs rise, and between two of them lies a hole.
type Coverage struct {
	// Durable is the offset below which everything was durable in the log's own
	// files.
	Durable kafka.Offset
	// Runs are what a replay appends.
	Runs []Run
}

// End returns the offset below which everything was durable, in the log's own
// files or in the journal; 0 if nothing is known.
func (c Coverage) End() kafka.Offset {
	if n := len(c.Runs); n > 0 {
		return max(c.Durable, c.Runs[n-1].End)
	}
	return c.Durable
}

// Covers reports whether a replay brings back everything in [from, to).
func (c Coverage) Covers(from, to kafka.Offset) bool {
	return from >= to || slices.ContainsFunc(c.Runs, func(r Run) bool { return r.Base <= from && to <= r.End })
}

func (c *Coverage) add(base, end kafka.Offset) {
	if n := len(c.Runs); n > 0 && base <= c.Runs[n-1].End {
		c.Runs[n-1].End = max(c.Runs[n-1].End, end)
		return
	}
	c.Runs = append(c.Runs, Run{base, end})
}

func (c *Coverage) cut(to kafka.Offset) {
	c.Durable = min(c.Durable, to)
	for n := len(c.Runs); n > 0 && c.Runs[n-1].End > to; n-- {
		if c.Runs[n-1].Base < to {
			c.Runs[n-1].End = to
			return
		}
		c.Runs = c.Runs[:n-1]
	}
}

// mark is a place between two entries.
type mark struct {
	sequence uint64
	index    int
}

func (m mark) compare(o mark) int {
	return cmp.Or(cmp.Compare(m.sequence, o.sequence), cmp.Compare(m.index, o.index))
}

func (m mark) after(o mark) bool { return m.compare(o) > 0 }

// history is what the journal's entries say of one log.
type history struct {
	// events are all entries in any order, until they are settled. Appends that
	// continue one another are one.
	events []event
	// stretch is the piece of a file that the newest event is in; openRun and
	// openNote are the events there that further ones are joined to.
	stretch, openRun, openNote int

	// superseded is the last entry before which nothing counts.
	superseded mark
	// live stands for the entries in the newest file that a replay has read.
	live *liveEntry
	// cuts are the truncations, in order. A later one to a lower offset
	// outdoes an earlier one: to is the least from there on.
	cuts     []cut
	coverage Coverage
}

type event struct {
	mark
	kind      Kind
	base, end kafka.Offset
}

type cut struct {
	mark
	to kafka.Offset
}

// note takes an entry in. A stretch is a number for frames that follow one
// another in one file and of which a replay needs all or none.
func (h *history) note(m mark, e Entry, stretch int) {
	if h.stretch != stretch {
		h.stretch, h.openRun, h.openNote = stretch, -1, -1
	}
	switch e.Kind {
	case Append:
		if h.openRun >= 0 && h.events[h.openRun].end == e.BaseOffset {
			h.events[h.openRun].end = e.EndOffset
			return
		}
		h.openRun = len(h.events)
	case filesSynced:
		if h.openNote >= 0 {
			h.events[h.openNote].end = max(h.events[h.openNote].end, e.EndOffset)
			return
		}
		h.openNote = len(h.events)
	default:
		h.openRun, h.openNote = -1, -1
	}
	h.events = append(h.events, event{m, e.Kind, e.BaseOffset, e.EndOffset})
}

// settle draws the conclusions once all events are known. Frames before
// neededFrom tell nothing about how far the log is durable: it may have been
// truncated since without an entry that says so.
func (h *history) settle(neededFrom uint64) {
	slices.SortFunc(h.events, func(a, b event) int { return a.compare(b.mark) })
	c := &h.coverage
	for _, e := range h.events {
		needed := e.sequence >= neededFrom
		switch e.kind {
		case Append:
			if needed {
				c.add(e.base, e.end)
			}
		case Truncate:
			h.cuts = append(h.cuts, cut{e.mark, e.end})
			c.cut(e.end)
		case synced:
			h.superseded = e.mark
			if needed {
				*c = Coverage{Durable: max(e.end, c.End())}
			}
		case forgotten:
			h.superseded = e.mark
			*c = Coverage{}
		case filesSynced:
			if needed {
				c.Durable = max(c.Durable, e.end)
			}
		}
	}
	h.events = nil
	for i := len(h.cuts) - 2; i >= 0; i-- {
		h.cuts[i].to = min(h.cuts[i].to, h.cuts[i+1].to)
	}
}

// drops reports whether an entry has no effect: something later supersedes it,
// or it is an append that was cut off whole. The log's own files may be newer
// than the entry and lack what comes before it.
func (h *history) drops(m mark, e Entry) bool {
	if h.superseded.after(m) {
		return true
	}
	i, _ := slices.BinarySearchFunc(h.cuts, m, func(c cut, m mark) int {
		if c.after(m) {
			return 1
		}
		return -1
	})
	return e.Kind == Append && i < len(h.cuts) && e.BaseOffset >= h.cuts[i].to
}

// Coverage returns what the journal, as it was opened, knows of a log. Keep
// and Reset forget it.
func (j *Journal) Coverage(id kafka.TopicIDPartition) Coverage {
	if h := j.histories[id]; h != nil {
		return h.coverage
	}
	return Coverage{}
}

// Covered returns the logs of which the journal, as it was opened, knows that
// something of theirs was durable.
func (j *Journal) Covered() []kafka.TopicIDPartition {
	var ids []kafka.TopicIDPartition
	for id, h := range j.histories {
		if h.coverage.End() > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
