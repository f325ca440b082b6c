package moves

import (
	"cmp"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Broker is a broker as far as plans need it.
type Broker struct {
	ID   kafka.BrokerID
	Rack string // "" for none: such brokers stand in one rack together.
	// Available says that it may be given replicas.
	Available bool
}

// Partition is a partition as it is, or, while it moves, as it will be.
type Partition struct {
	kafka.TopicPartition
	Replicas []kafka.BrokerID // The first is the preferred leader.
	// Bytes is the size of one replica; 0 where it is not known.
	Bytes int64
}

// Cluster is what plans are made from. It is not changed.
type Cluster struct {
	Brokers    []Broker
	Partitions []Partition
}

// Move is what is to become of a partition.
type Move struct {
	kafka.TopicPartition
	From, To []kafka.BrokerID // The first is the preferred leader.
	Bytes    int64            // Of one replica.
}

// Added returns the brokers that get a copy.
func (m *Move) Added() []kafka.BrokerID { return without(m.To, m.From) }

// Copied is how many bytes have to be copied.
func (m *Move) Copied() int64 { return int64(len(m.Added())) * m.Bytes }

// Plan is a list of moves in the order of topics and partitions.
type Plan []Move

// Copied is how many bytes the plan has to copy.
func (p Plan) Copied() (sum int64) {
	for i := range p {
		sum += p[i].Copied()
	}
	return sum
}

// Load is what a broker carries.
type Load struct {
	Leaders  int // Partitions that prefer it as their leader.
	Replicas int
	Bytes    int64
}

// Loads returns what each broker carries.
func (c *Cluster) Loads() map[kafka.BrokerID]Load {
	loads := make(map[kafka.BrokerID]Load, len(c.Brokers))
	for _, b := range c.Brokers {
		loads[b.ID] = Load{}
	}
	for i := range c.Partitions {
		p := &c.Partitions[i]
		for n, id := range p.Replicas {
			l := loads[id]
			l.Replicas++
			l.Bytes += p.Bytes
			if n == 0 {
				l.Leaders++
			}
			loads[id] = l
		}
	}
	return loads
}

// After returns the cluster as it is when a plan has been carried out.
func (c *Cluster) After(p Plan) *Cluster {
	to := make(map[kafka.TopicPartition][]kafka.BrokerID, len(p))
	for i := range p {
		to[p[i].TopicPartition] = p[i].To
	}
	after := &Cluster{Brokers: c.Brokers, Partitions: slices.Clone(c.Partitions)}
	for i := range after.Partitions {
		if replicas, ok := to[after.Partitions[i].TopicPartition]; ok {
			after.Partitions[i].Replicas = replicas
		}
	}
	return after
}

// partitionCost is what a replica weighs beside its bytes: files, memory and
// requests, so that empty ones are spread too.
const partitionCost = 1 << 20

// weight is how much of a broker's room a replica takes.
func (p *Partition) weight() int64 { return p.Bytes + partitionCost }

// draft is a plan in the making.
type draft struct {
	from    *Cluster
	brokers []kafka.BrokerID // Those that may be given replicas, by id.
	racks   map[kafka.BrokerID]string
	// replicas are what partitions have so far, by their index in from.
	replicas [][]kafka.BrokerID
	weights  map[kafka.BrokerID]int64
}

// newDraft begins with the cluster as it is. Brokers for which shunned is true are
// given nothing.
func (c *Cluster) newDraft(shunned func(kafka.BrokerID) bool) *draft {
	d := &draft{
		from: c, racks: map[kafka.BrokerID]string{}, weights: map[kafka.BrokerID]int64{},
		replicas: make([][]kafka.BrokerID, len(c.Partitions)),
	}
	for _, b := range c.Brokers {
		d.racks[b.ID] = b.Rack
		if b.Available && !shunned(b.ID) {
			d.brokers = append(d.brokers, b.ID)
		}
	}
	slices.Sort(d.brokers)
	for i := range c.Partitions {
		p := &c.Partitions[i]
		d.replicas[i] = slices.Clone(p.Replicas)
		for _, id := range p.Replicas {
			d.weights[id] += p.weight()
		}
	}
	return d
}

// mayHold says whether a broker may be given replicas.
func (d *draft) mayHold(id kafka.BrokerID) bool {
	_, ok := slices.BinarySearch(d.brokers, id)
	return ok
}

// inRack counts those of a list, but for one place, that stand in a rack.
func (d *draft) inRack(replicas []kafka.BrokerID, but int, rack string) (n int) {
	for i, id := range replicas {
		if i != but && d.racks[id] == rack {
			n++
		}
	}
	return n
}

// newcomer returns the broker that a partition's next replica should go to, in the
// place of one of them or, with but < 0, beside them: in the rack that has the fewest
// of the others, and there the one that carries least.
func (d *draft) newcomer(replicas []kafka.BrokerID, but int) (best kafka.BrokerID, ok bool) {
	least := 0
	for _, id := range d.brokers {
		if slices.Contains(replicas, id) {
			continue
		}
		n := d.inRack(replicas, but, d.racks[id])
		if !ok || cmp.Or(cmp.Compare(n, least), cmp.Compare(d.weights[id], d.weights[best])) < 0 {
			best, least, ok = id, n, true
		}
	}
	return best, ok
}

// set gives a place of a partition to another broker.
func (d *draft) set(i, place int, id kafka.BrokerID) {
	w := d.from.Partitions[i].weight()
	d.weights[d.replicas[i][place]] -= w
	d.weights[id] += w
	d.replicas[i][place] = id
}

// add gives a partition one more replica, at the end.
func (d *draft) add(i int, id kafka.BrokerID) {
	d.replicas[i] = append(d.replicas[i], id)
	d.weights[id] += d.from.Partitions[i].weight()
}

// drop takes a replica off a partition.
func (d *draft) drop(i, place int) {
	d.weights[d.replicas[i][place]] -= d.from.Partitions[i].weight()
	d.replicas[i] = slices.Delete(d.replicas[i], place, place+1)
}

// restore gives a partition back what it has.
func (d *draft) restore(i int) {
	p := &d.from.Partitions[i]
	for _, id := range d.replicas[i] {
		d.weights[id] -= p.weight()
	}
	for _, id := range p.Replicas {
		d.weights[id] += p.weight()
	}
	d.replicas[i] = slices.Clone(p.Replicas)
}

// plan is what the draft changes.
func (d *draft) plan() Plan {
	var plan Plan
	for i := range d.from.Partitions {
		p := &d.from.Partitions[i]
		if !slices.Equal(p.Replicas, d.replicas[i]) {
			plan = append(plan, Move{p.TopicPartition, p.Replicas, d.replicas[i], p.Bytes})
		}
	}
	slices.SortFunc(plan, func(a, b Move) int { return a.TopicPartition.Compare(b.TopicPartition) })
	return plan
}

// order returns the indexes of the partitions in the order of topics and partitions,
// so that plans do not hang on how the cluster was listed; with bySize the largest
// first, which find room more easily so.
func (d *draft) order(bySize bool) []int {
	order := make([]int, len(d.from.Partitions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := &d.from.Partitions[a], &d.from.Partitions[b]
		if bySize && p.Bytes != q.Bytes {
			return cmp.Compare(q.Bytes, p.Bytes)
		}
		return p.TopicPartition.Compare(q.TopicPartition)
	})
	return order
}

// without returns those of ids that are not in others.
func without(ids, others []kafka.BrokerID) (out []kafka.BrokerID) {
	for _, id := range ids {
		if !slices.Contains(others, id) {
			out = append(out, id)
		}
	}
	return out
}

// leads counts for how many partitions each broker is the preferred leader.
func (d *draft) leads() map[kafka.BrokerID]int {
	leads := make(map[kafka.BrokerID]int, len(d.racks))
	for _, replicas := range d.replicas {
		leads[replicas[0]]++
	}
	return leads
}
