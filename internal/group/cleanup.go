package group

import (
	"slices"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// maxTombstones bounds what one step of the cleanup appends.
const maxTombstones = 1000

// cleanup is the background work of a shard: offsets that have expired, and
// offsets of topics that were deleted.
type cleanup struct {
	atMs    int64                      // When offsets are checked for expiry next.
	queue   []string                   // Groups that are still to be checked in this round.
	deleted map[string][]kafka.TopicID // By topic name; zero for every incarnation.
	orphans map[incarnation]bool       // That were gone when the shard was loaded.
	again   bool                       // There is more to do at once.
}

// incarnation is a topic as an offset names it; the id may be zero.
type incarnation struct {
	name string
	id   kafka.TopicID
}

func (c *cleanup) deadline() int64 {
	if c.again {
		return 0
	}
	return c.atMs
}

// TopicDeleted makes the shard delete the offsets in a topic, in steps of Tick.
// An id that is zero stands for every incarnation of the name.
func (s *Shard) TopicDeleted(name string, id kafka.TopicID) {
	c := &s.cleanup
	if c.deleted == nil {
		c.deleted = map[string][]kafka.TopicID{}
	}
	c.deleted[name] = append(c.deleted[name], id)
	c.queue, c.again = nil, true
}

// findOrphans makes the shard delete the offsets in topics that are not there any
// more. Whoever coordinated the groups before may have gone before it saw the
// topic deleted, or before what it did about that was durable.
func (s *Shard) findOrphans() {
	topics := s.topics
	if s.topics = nil; topics == nil {
		return
	}
	c := &s.cleanup
	isThere := map[incarnation]bool{}
	for _, g := range s.groups {
		for name, partitions := range g.offsets {
			for _, o := range partitions {
				t := incarnation{name, o.TopicID}
				there, known := isThere[t]
				if !known {
					there = t.isIn(topics)
					isThere[t] = there
				}
				if there {
					continue
				}
				if c.orphans == nil {
					c.orphans = map[incarnation]bool{}
				}
				c.orphans[t], c.again = true, true
			}
		}
	}
}

// isIn reports whether the topic is there. Without an id any of its name is it.
func (t incarnation) isIn(topics Topics) bool {
	if t.id.IsZero() {
		_, _, ok := topics.Topic(t.name)
		return ok
	}
	_, ok := topics.TopicName(t.id)
	return ok
}

// cleanUp goes on with a round of cleaning: one step looks at groups until it
// has found enough to delete. A round ends when the queue is empty.
func (s *Shard) cleanUp(nowMs int64, fx *shard.Effects) {
	c := &s.cleanup
	if len(c.queue) == 0 {
		for id := range s.groups {
			c.queue = append(c.queue, id)
		}
		slices.Sort(c.queue)
		slices.Reverse(c.queue)
	}
	for n := 0; len(c.queue) > 0 && len(fx.Records) < maxTombstones && n < maxTombstones; n++ {
		last := len(c.queue) - 1
		g := s.groups[c.queue[last]]
		if g == nil || s.cleanGroup(g, nowMs, fx) {
			c.queue = c.queue[:last]
		}
	}
	c.again = len(c.queue) > 0
	if !c.again {
		c.queue, c.deleted, c.orphans = nil, nil, nil
		c.atMs = nowMs + max(s.settings.RetentionCheck.Milliseconds(), 1)
	}
}

// cleanGroup adds the tombstones that a group needs, and reports whether it is
// done with the group.
func (s *Shard) cleanGroup(g *group, nowMs int64, fx *shard.Effects) bool {
	left := 0
	for _, name := range g.topics(nil) {
		for _, p := range g.partitions(nil, name) {
			o := g.offsets[name][p]
			switch {
			case !s.topicDeleted(name, &o) && (!s.offsetExpired(g, &o, nowMs) || g.stability(true, name, p) != kafka.ErrNone):
				left++
			case len(fx.Records) >= maxTombstones:
				return false
			default:
				g.appendOffsetTombstone(fx, name, p)
			}
		}
	}
	if left == 0 && g.state == Empty && len(g.pending) == 0 && len(g.unstable) == 0 {
		// Nothing is left that anybody could miss.
		g.appendTombstone(fx)
	}
	return true
}

// topicDeleted reports whether an offset is in a topic that was deleted. Offsets
// that do not say which incarnation they are of go with the name.
func (s *Shard) topicDeleted(name string, o *Offset) bool {
	ids := s.cleanup.deleted[name]
	return s.cleanup.orphans[incarnation{name, o.TopicID}] || slices.Contains(ids, o.TopicID) || slices.Contains(ids, kafka.TopicID{}) ||
		len(ids) > 0 && o.TopicID.IsZero()
}

// offsetExpired reports whether an offset is too old to keep (KIP-211): only
// offsets of empty groups are, counted from when the group became empty. In
// groups that never had members, each offset counts for itself.
func (s *Shard) offsetExpired(g *group, o *Offset, nowMs int64) bool {
	if g.state != Empty {
		return false
	}
	if o.ExpiresMs != noExpiry {
		return nowMs >= o.ExpiresMs
	}
	since := o.CommittedMs
	if g.protocolType != "" && g.stateSinceMs > since {
		since = g.stateSinceMs
	}
	return nowMs-since >= s.settings.OffsetsRetention.Milliseconds()
}
