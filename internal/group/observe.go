package group

import "github.com/strandline/strandline/internal/kafka"

// Observed is a group as a monitor sees it.
type Observed struct {
	GroupID    string
	State      State
	Generation int32
	Members    int
}

// Observe calls group for each group of the shard, and after it offset for each
// of that group's committed offsets, in no order. What was committed may not be
// durable yet: it is for monitors.
func (s *Shard) Observe(
	topics Topics, group func(Observed), offset func(at kafka.TopicPartition, next kafka.Offset),
) {
	for _, g := range s.groups {
		group(Observed{GroupID: g.id, State: g.state, Generation: g.generation, Members: len(g.members)})
		for name, partitions := range g.offsets {
			for p, o := range partitions {
				if !o.stale(topics, name) {
					offset(kafka.TopicPartition{Topic: name, Partition: p}, o.Offset)
				}
			}
		}
	}
}
