package moves

import (
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Drain plans how brokers are left by all replicas and leaders. A replica goes where
// its partition has none, to the rack with the fewest others and there to the broker
// that carries least; a partition that preferred to be led by one that is left
// prefers another that it has already, so that it can go on at once.
//
// Partitions for which there are too few other brokers are stuck: their replicas stay,
// and only who leads changes. With fewer set, they have fewer replicas instead, as long
// as one remains.
func (c *Cluster) Drain(away []kafka.BrokerID, fewer bool) (plan Plan, stuck []kafka.TopicPartition) {
	leaves := func(id kafka.BrokerID) bool { return slices.Contains(away, id) }
	d := c.newDraft(leaves)
	for _, i := range d.order(true) {
		if !d.drain(i, leaves, fewer) {
			stuck = append(stuck, c.Partitions[i].TopicPartition)
			d.restore(i)
		}
	}
	leads := d.leads()
	for _, i := range d.order(false) {
		d.succeed(i, leaves, leads)
	}
	slices.SortFunc(stuck, kafka.TopicPartition.Compare)
	return d.plan(), stuck
}

// drain gives the places of a partition on brokers that are left to others.
func (d *draft) drain(i int, leaves func(kafka.BrokerID) bool, fewer bool) bool {
	for place := 0; place < len(d.replicas[i]); place++ {
		if !leaves(d.replicas[i][place]) {
			continue
		}
		id, ok := d.newcomer(d.replicas[i], place)
		switch {
		case ok:
			d.set(i, place, id)
		case fewer && slices.ContainsFunc(d.replicas[i], func(id kafka.BrokerID) bool { return !leaves(id) }):
			d.drop(i, place)
			place--
		default:
			return false
		}
	}
	return true
}

// succeed gives a partition whose preferred leader leaves the next one: of those that
// stay, one that is there and has its records already, and of these the one that is
// preferred least often.
func (d *draft) succeed(i int, leaves func(kafka.BrokerID) bool, leads map[kafka.BrokerID]int) {
	had, now := d.from.Partitions[i].Replicas, d.replicas[i]
	if !leaves(had[0]) {
		return
	}
	leads[now[0]]--
	best, bestRank := 0, [2]int{3, 0}
	for place, id := range now {
		rank := [2]int{0, leads[id]}
		switch {
		case !d.mayHold(id):
			rank[0] = 2
		case !slices.Contains(had, id):
			rank[0] = 1
		}
		if !leaves(id) && slices.Compare(rank[:], bestRank[:]) < 0 {
			best, bestRank = place, rank
		}
	}
	leads[now[best]]++
	now[0], now[best] = now[best], now[0]
}
