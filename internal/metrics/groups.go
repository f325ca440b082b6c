package metrics

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// maxLookups bounds the batch headers that one scrape reads. A group's lag in
// time that it did not get to is told by a later scrape.
const maxLookups = 2_000

// lags tells how far groups are behind. It remembers the ages that it looked
// up: a group that does not move costs nothing.
type lags struct {
	sources Sources

	mu    sync.Mutex // One scrape at a time; what follows is its scratch and memory.
	ages  map[lagKey]age
	found []committed
	// listed are the groups that have series of their own.
	listed map[string]bool
}

// lagKey is a group's place in a partition.
type lagKey struct {
	group string
	at    kafka.TopicPartition
}

// age is when the first record at an offset was made.
type age struct {
	offset kafka.Offset
	ms     int64
}

// committed is an offset that a group has committed.
type committed struct {
	lagKey
	offset kafka.Offset
}

// topicLag is a group's lag in a topic.
type topicLag struct {
	records int64
	seconds float64
	known   bool // In seconds.
}

// groupTopic names one.
type groupTopic struct{ group, topic string }

func (l *lags) collect(to *scrape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observe(to)
	each := l.sources.partitionSeries() && len(l.found) <= int(l.sources.Settings().MetricsPartitionSeriesMax)
	nowMs := l.sources.Now().UnixMilli()
	topics := map[groupTopic]*topicLag{}
	ages := make(map[lagKey]age, len(l.ages))
	lookups := 0
	slices.SortFunc(l.found, func(a, b committed) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.at.Topic, b.at.Topic),
			cmp.Compare(a.at.Partition, b.at.Partition))
	})
	for _, c := range l.found {
		if !l.listed[c.group] {
			continue
		}
		p, start, end, ok := l.sources.highWatermarkOf(c.at)
		if !ok {
			continue
		}
		first := max(c.offset, start)
		records := max(int64(end-first), 0)
		seconds := math.NaN()
		switch {
		case records == 0:
			seconds = 0
		default:
			if a, ok := l.ageOf(p, c.lagKey, first, &lookups); ok {
				ages[c.lagKey] = a
				seconds = max(float64(nowMs-a.ms)/1e3, 0)
			}
		}
		key := groupTopic{c.group, c.at.Topic}
		if topics[key] == nil {
			topics[key] = &topicLag{}
		}
		topics[key].add(records, seconds)
		if each {
			to.lag(c.lagKey, records, seconds)
		}
	}
	l.ages = ages
	for key, t := range topics {
		labels := pairs("group", key.group, "topic", key.topic)
		to.put("strandline_group_topic_lag_records", float64(t.records), labels)
		if t.known {
			to.put("strandline_group_topic_lag_seconds", t.seconds, labels)
		}
	}
}

// observe tells the groups, and collects what they have committed. Nothing else
// is done while a shard is held.
func (l *lags) observe(to *scrape) {
	clear(l.found)
	l.found = l.found[:0]
	states := map[group.State]int{
		group.Empty: 0, group.PreparingRebalance: 0, group.CompletingRebalance: 0, group.Stable: 0,
	}
	var seen []group.Observed
	topics := groups.Topics{Image: l.sources.Image()}
	// A shard that is being loaded is told of once it is there.
	_ = l.sources.Groups(func(s *group.Shard) {
		s.Observe(topics, func(g group.Observed) {
			states[g.State]++
			seen = append(seen, g)
		}, func(at kafka.TopicPartition, next kafka.Offset) {
			l.found = append(l.found, committed{lagKey{seen[len(seen)-1].GroupID, at}, next})
		})
	})
	l.list(seen)
	to.gauge("strandline_groups_unlisted", float64(len(seen)-len(l.listed)))
	for _, g := range seen {
		if !l.listed[g.GroupID] {
			continue
		}
		labels := pairs("group", g.GroupID)
		to.put("strandline_group_members", float64(g.Members), labels)
		to.put("strandline_group_generation", float64(g.Generation), labels)
	}
	for state, n := range states {
		to.gauge("strandline_groups", float64(n), "state", state.String())
	}
}

// list chooses the groups that have series of their own, within
// metrics.group.series.max: anybody can make up groups, and a scrape must not grow
// with them without bound. Those that have members go first, and then names, so
// that it is the same groups from scrape to scrape.
func (l *lags) list(seen []group.Observed) {
	topics := map[string]int{}
	last := lagKey{}
	for _, c := range l.found { // Those of one topic of a group stand together.
		if c.group != last.group || c.at.Topic != last.at.Topic {
			topics[c.group]++
			last = c.lagKey
		}
	}
	slices.SortFunc(seen, func(a, b group.Observed) int {
		return cmp.Or(cmp.Compare(min(b.Members, 1), min(a.Members, 1)), cmp.Compare(a.GroupID, b.GroupID))
	})
	l.listed = map[string]bool{}
	left := int(l.sources.Settings().MetricsGroupSeriesMax)
	for _, g := range seen {
		if cost := 1 + topics[g.GroupID]; cost <= left {
			left -= cost
			l.listed[g.GroupID] = true
		}
	}
}

// ageOf returns when the first record from offset on was made, from memory if
// the group has not moved.
func (l *lags) ageOf(p *partition.Partition, key lagKey, offset kafka.Offset, lookups *int) (age, bool) {
	if a, ok := l.ages[key]; ok && a.offset == offset {
		return a, true
	}
	if *lookups >= maxLookups {
		return age{}, false
	}
	*lookups++
	ms, ok, err := p.Log().BatchTimestamp(offset)
	if err != nil || !ok || ms < 0 {
		return age{}, false // Readers are told what is wrong.
	}
	return age{offset, ms}, true
}

func (t *topicLag) add(records int64, seconds float64) {
	t.records += records
	if !math.IsNaN(seconds) {
		t.seconds, t.known = max(t.seconds, seconds), true
	}
}

func (s *scrape) lag(key lagKey, records int64, seconds float64) {
	labels := labelled("group", key.group, "partition", number(key.at.Partition), "topic", key.at.Topic)
	s.series("strandline_group_lag_records", float64(records), labels)
	if !math.IsNaN(seconds) {
		s.series("strandline_group_lag_seconds", seconds, labels)
	}
}
