package moves

import (
	"cmp"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// What is not worth a move: brokers that differ by less than a tenth of what one
// carries on average, and a copy that evens out less than a quarter of what it
// copies.
const (
	slackShare = 10
	gainShare  = 4
)

// Balance plans how the available brokers come to carry alike: first bytes, counting
// something for each replica too, then leaders, which costs no copying. Replicas on
// brokers that are not available stay: those are drained, or come back.
func (c *Cluster) Balance() Plan {
	d := c.newDraft(func(kafka.BrokerID) bool { return false })
	if len(d.brokers) < 2 {
		return nil
	}
	order := d.order(false)
	for d.evenOut(order) {
	}
	d.evenLeaders(order)
	return d.plan()
}

// Lead is Balance for leaders alone.
func (c *Cluster) Lead() Plan {
	d := c.newDraft(func(kafka.BrokerID) bool { return false })
	d.evenLeaders(d.order(false))
	return d.plan()
}

// evenOut moves one replica from a broker that carries more to one that carries less,
// the most unequal pair first, and reports whether there was one to move.
func (d *draft) evenOut(order []int) bool {
	heavy := slices.Clone(d.brokers)
	slices.SortStableFunc(heavy, func(a, b kafka.BrokerID) int { return cmp.Compare(d.weights[b], d.weights[a]) })
	var total int64
	for _, id := range heavy {
		total += d.weights[id]
	}
	slack := total / int64(len(heavy)) / slackShare
	for _, from := range heavy {
		for _, to := range slices.Backward(heavy) {
			difference := d.weights[from] - d.weights[to]
			if difference <= slack {
				break // Those that follow carry more still.
			}
			if i, place, ok := d.bestMove(order, from, to, difference); ok {
				d.set(i, place, to)
				return true
			}
		}
	}
	return false
}

// bestMove returns the replica whose move from one broker to another evens them out
// most.
func (d *draft) bestMove(order []int, from, to kafka.BrokerID, difference int64) (index, at int, ok bool) {
	var most int64
	for _, i := range order {
		weight := d.from.Partitions[i].weight()
		gain := min(weight, difference-weight)
		if gain <= most || gain < weight/gainShare {
			continue
		}
		replicas := d.replicas[i]
		place := slices.Index(replicas, from)
		if place < 0 || slices.Contains(replicas, to) || !d.keepsRacks(replicas, place, to) {
			continue
		}
		index, at, most, ok = i, place, gain, true
	}
	return index, at, ok
}

// keepsRacks says whether a partition stands in as many racks as before when another
// broker takes a place of it.
func (d *draft) keepsRacks(replicas []kafka.BrokerID, place int, to kafka.BrokerID) bool {
	return d.inRack(replicas, place, d.racks[to]) == 0 || d.inRack(replicas, place, d.racks[replicas[place]]) > 0
}

// evenLeaders changes who is preferred as the leader until no two brokers differ by
// more than one that a change could even out. A change goes along a path of brokers
// where it has to: A hands a partition to B, and B another one to C.
func (d *draft) evenLeaders(order []int) {
	l := &leaders{draft: d, leads: d.leads(), led: map[pair][]int{}}
	for _, i := range order {
		l.offer(i)
	}
	for l.shift() {
	}
}

// pair is a broker that leads and another that could.
type pair struct{ from, to kafka.BrokerID }

// leaders is the work on who leads.
type leaders struct {
	*draft
	leads map[kafka.BrokerID]int
	// led are the partitions that one broker leads and another could, by their
	// indexes; some have another leader by now.
	led map[pair][]int
}

// offer notes who else could lead a partition.
func (l *leaders) offer(i int) {
	replicas := l.replicas[i]
	for _, id := range replicas[1:] {
		if l.mayHold(id) {
			key := pair{replicas[0], id}
			l.led[key] = append(l.led[key], i)
		}
	}
}

// next returns a partition that one broker could hand to another.
func (l *leaders) next(p pair) (int, bool) {
	list := l.led[p]
	for len(list) > 0 && l.replicas[list[len(list)-1]][0] != p.from {
		list = list[:len(list)-1]
	}
	l.led[p] = list
	if len(list) == 0 {
		return 0, false
	}
	return list[len(list)-1], true
}

// shift takes one partition from a broker that leads many, to one that leads at least
// two fewer, and reports whether there was a way.
func (l *leaders) shift() bool {
	most := slices.Clone(l.brokers)
	slices.SortStableFunc(most, func(a, b kafka.BrokerID) int { return cmp.Compare(l.leads[b], l.leads[a]) })
	for _, from := range most {
		if path := l.path(from); path != nil {
			for i := range path[1:] {
				l.hand(path[i], path[i+1])
			}
			return true
		}
	}
	return false
}

// path returns the shortest way from a broker to one that leads at least two fewer,
// of several the one that leads least.
func (l *leaders) path(from kafka.BrokerID) []kafka.BrokerID {
	before := map[kafka.BrokerID]kafka.BrokerID{from: from}
	for level := []kafka.BrokerID{from}; len(level) > 0; {
		var next []kafka.BrokerID
		best, found := kafka.NoBroker, false
		for _, at := range level {
			for _, to := range l.brokers {
				if _, seen := before[to]; seen {
					continue
				}
				if _, ok := l.next(pair{at, to}); !ok {
					continue
				}
				before[to] = at
				next = append(next, to)
				if l.leads[to] <= l.leads[from]-2 && (!found || l.leads[to] < l.leads[best]) {
					best, found = to, true
				}
			}
		}
		if found {
			path := []kafka.BrokerID{best}
			for at := best; at != from; at = before[at] {
				path = append(path, before[at])
			}
			slices.Reverse(path)
			return path
		}
		level = next
	}
	return nil
}

// hand gives one partition that a broker leads to another.
func (l *leaders) hand(from, to kafka.BrokerID) {
	i, _ := l.next(pair{from, to}) // There is one, or there was no way.
	replicas := l.replicas[i]
	at := slices.Index(replicas, to)
	replicas[0], replicas[at] = replicas[at], replicas[0]
	l.leads[from]--
	l.leads[to]++
	l.offer(i)
}
