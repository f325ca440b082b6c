package moves

import (
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Replicate plans more replicas: each partition gets as many as factor says for its
// topic, if it has fewer. What it has already stays where it is. Partitions for which
// there are too few brokers are short, and get what there is.
func (c *Cluster) Replicate(factor func(topic string) int) (plan Plan, short []kafka.TopicPartition) {
	d := c.newDraft(func(kafka.BrokerID) bool { return false })
	for _, i := range d.order(true) {
		p := &c.Partitions[i]
		for want := factor(p.Topic); len(d.replicas[i]) < want; {
			id, ok := d.newcomer(d.replicas[i], -1)
			if !ok {
				short = append(short, p.TopicPartition)
				break
			}
			d.add(i, id)
		}
	}
	slices.SortFunc(short, kafka.TopicPartition.Compare)
	return d.plan(), short
}

// Then returns one plan for two, the second of which was made for the cluster after
// the first.
func (p Plan) Then(next Plan) Plan {
	all := slices.Clone(p)
	for i := range next {
		at, found := slices.BinarySearchFunc(all, next[i].TopicPartition, func(m Move, tp kafka.TopicPartition) int {
			return m.TopicPartition.Compare(tp)
		})
		if found {
			all[at].To = next[i].To
		} else {
			all = slices.Insert(all, at, next[i])
		}
	}
	return slices.DeleteFunc(all, func(m Move) bool { return slices.Equal(m.From, m.To) })
}
