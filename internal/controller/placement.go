package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// placement decides where the replicas of new partitions go, within the limits of
// one request and of the cluster.
type placement struct {
	// brokers are those that may lead, so that neighbours stand in different racks;
	// the others get a replica only where there are too few: first those that are absent,
	// then those that are cordoned.
	brokers  []kafka.BrokerID
	absent   []kafka.BrokerID
	cordoned []kafka.BrokerID
	// available are all that may lead, cordoned or not.
	available map[kafka.BrokerID]bool
	racks     map[kafka.BrokerID]string
	all       map[kafka.BrokerID]bool
	// room is how many more replicas each broker may hold (max.partitions.per.broker).
	room    map[kafka.BrokerID]int
	perNode int
	next    int // Where the next partition's first replica goes, counted round.
	// partitions were created by this request so far.
	partitions int
	// sets are the replica lists in use: partitions with the same replicas share
	// one slice.
	sets map[[3]int][]kafka.BrokerID
}

func (s *State) newPlacement() placement {
	p := placement{
		all: map[kafka.BrokerID]bool{}, racks: map[kafka.BrokerID]string{},
		room: map[kafka.BrokerID]int{}, available: map[kafka.BrokerID]bool{},
		perNode: int(s.broker.MaxPartitionsPerBroker), next: s.image.PartitionCount(),
		sets: map[[3]int][]kafka.BrokerID{},
	}
	for _, b := range s.image.Brokers() {
		p.all[b.ID], p.racks[b.ID] = true, b.Rack
		p.room[b.ID] = s.room(b.ID)
		switch {
		case !b.Available():
			p.absent = append(p.absent, b.ID)
			continue
		case s.cordoned(b.ID):
			p.cordoned = append(p.cordoned, b.ID)
		default:
			p.brokers = append(p.brokers, b.ID)
		}
		p.available[b.ID] = true
	}
	if len(p.brokers) == 0 {
		p.brokers, p.cordoned = p.cordoned, nil
	}
	p.brokers = interleave(p.brokers, p.racks)
	return p
}

// cordoned reports whether a broker is to get no more replicas (KIP-1066).
func (s *State) cordoned(id kafka.BrokerID) bool {
	return config.Cordoned(s.image.Config(brokerResource(id)))
}

// room is how many more replicas a broker may hold.
func (s *State) room(id kafka.BrokerID) int {
	return max(0, int(s.broker.MaxPartitionsPerBroker)-s.image.ReplicasOn(id))
}

// interleave orders brokers so that neighbours stand in different racks as far as
// possible: the first of each rack, the second of each, and so on. Brokers of one
// rack stay in their order.
func interleave(brokers []kafka.BrokerID, racks map[kafka.BrokerID]string) []kafka.BrokerID {
	turn, taken := make(map[kafka.BrokerID]int, len(brokers)), map[string]int{}
	for _, id := range brokers {
		turn[id] = taken[racks[id]]
		taken[racks[id]]++
	}
	slices.SortStableFunc(brokers, func(a, b kafka.BrokerID) int {
		if len(taken) < 2 {
			return 0
		}
		return cmp.Or(cmp.Compare(turn[a], turn[b]), cmp.Compare(racks[a], racks[b]))
	})
	return brokers
}

// spread places partitions round the brokers, each partition's first replica on
// the broker after that of the partition before, so that leaders are even. The
// other replicas go to the brokers that follow, at a distance that differs from
// round to round, so that what a broker leads is not all copied to the same one,
// and to a rack that has none yet before one that has. Where there are fewer
// brokers available than replicas, the last replicas go to brokers that are not,
// and catch up when those are back, and only then to brokers that are cordoned.
// Brokers that hold all that they may are passed over.
func (p *placement) spread(partitions, factor int) ([]metadata.Partition, *kafka.Error) {
	if err := p.admit(partitions, factor); err != nil {
		return nil, err
	}
	switch {
	case factor > len(p.all):
		return nil, refuse(kafka.ErrInvalidReplicationFactor, "Unable to replicate the partition "+
			"%d time(s): there are %d broker(s). Ask for at most that many replicas, or start "+
			"more brokers",
			factor, len(p.all))
	case len(p.brokers) == 0:
		return nil, refuse(kafka.ErrInvalidReplicationFactor, "Unable to replicate the partition "+
			"%d time(s): none of the %d broker(s) is available to lead it. Start one",
			factor, len(p.all))
	}
	out := make([]metadata.Partition, partitions)
	left := maps.Clone(p.room)
	for i := range out {
		set := p.set(p.next+i, factor)
		if slices.ContainsFunc(set, func(id kafka.BrokerID) bool { return left[id] == 0 }) {
			var err *kafka.Error
			if set, err = p.around(left, p.next+i, factor); err != nil {
				return nil, err
			}
		}
		take(left, set)
		out[i] = p.alive(set)
	}
	return out, nil
}

// take counts replicas that brokers are to hold.
func take(left map[kafka.BrokerID]int, set []kafka.BrokerID) {
	for _, id := range set {
		left[id]--
	}
}

// around returns the replicas of the n-th partition on brokers that have room left.
func (p *placement) around(left map[kafka.BrokerID]int, n, factor int) ([]kafka.BrokerID, *kafka.Error) {
	full := func(id kafka.BrokerID) bool { return left[id] == 0 }
	rest := placement{
		brokers: slices.DeleteFunc(slices.Clone(p.brokers), full),
		absent:  slices.DeleteFunc(slices.Clone(p.absent), full),
		// Brokers that are leaving, once others are full.
		cordoned: slices.DeleteFunc(slices.Clone(p.cordoned), full),
		racks:    p.racks, sets: map[[3]int][]kafka.BrokerID{},
	}
	if len(rest.brokers) == 0 {
		rest.brokers, rest.cordoned = rest.cordoned, nil
	}
	if have := len(rest.brokers) + len(rest.absent) + len(rest.cordoned); have < factor || len(rest.brokers) == 0 {
		return nil, refuse(kafka.ErrPolicyViolation, "%d of %d broker(s) may hold more partition replicas "+
			"(max.partitions.per.broker=%d), and %d are needed: delete topics, raise the limit, or add brokers",
			have, len(p.all), p.perNode, factor)
	}
	return rest.set(n, factor), nil
}

// set returns the replicas of the n-th partition.
func (p *placement) set(n, factor int) []kafka.BrokerID {
	brokers := len(p.brokers)
	first, shift, others := n%brokers, 0, max(brokers-1, 1)
	if factor > 1 {
		shift = int(uint32(n/brokers)*2654435761>>16) % others // Knuth's hash.
	}
	key := [3]int{first, shift, factor}
	set, ok := p.sets[key]
	if !ok {
		set = append(make([]kafka.BrokerID, 0, factor), p.brokers[first])
		for len(set) < min(factor, brokers) {
			set = append(set, p.follower(set, first, shift))
		}
		set = append(set, p.spare(n, factor-len(set))...)
		p.sets[key] = set
	}
	return set
}

// spare returns the replicas of the n-th partition for which no other brokers are left.
func (p *placement) spare(n, count int) (out []kafka.BrokerID) {
	for _, group := range [][]kafka.BrokerID{p.absent, p.cordoned} {
		for i := range min(len(group), count-len(out)) {
			out = append(out, group[(n+i)%len(group)])
		}
	}
	return out
}

// follower returns the next member of a set: the first of those that follow its
// first whose rack has the fewest members.
func (p *placement) follower(set []kafka.BrokerID, first, shift int) kafka.BrokerID {
	brokers := len(p.brokers)
	best, least := kafka.NoBroker, len(set)+1
	for i := range brokers - 1 {
		id := p.brokers[(first+1+(shift+i)%(brokers-1))%brokers]
		if slices.Contains(set, id) {
			continue
		}
		members := 0
		for _, member := range set {
			if p.racks[member] == p.racks[id] {
				members++
			}
		}
		if members < least {
			best, least = id, members
		}
	}
	return best
}

// given places partitions where their creator wants them.
func (p *placement) given(lists [][]int32, factor int) ([]metadata.Partition, *kafka.Error) {
	if err := p.admit(len(lists), factor); err != nil {
		return nil, err
	}
	out := make([]metadata.Partition, len(lists))
	left := maps.Clone(p.room)
	for i, list := range lists {
		replicas := make([]kafka.BrokerID, 0, len(list))
		switch {
		case len(list) == 0:
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "the assignment of a partition "+
				"names no replica")
		case len(list) != factor:
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "the assignments have %d and "+
				"%d replicas: give every partition as many", factor, len(list))
		}
		for _, id := range list {
			id := kafka.BrokerID(id)
			if !p.all[id] {
				return nil, refuse(kafka.ErrInvalidReplicaAssignment, "there is no broker %d to "+
					"hold a replica", id)
			}
			if slices.Contains(replicas, id) {
				return nil, refuse(kafka.ErrInvalidReplicaAssignment, "broker %d is named twice "+
					"for one partition", id)
			}
			if slices.Contains(p.cordoned, id) {
				return nil, cordonedBroker(id)
			}
			if left[id] == 0 {
				return nil, fullBroker(id, p.perNode)
			}
			left[id]--
			replicas = append(replicas, id)
		}
		if out[i] = p.alive(replicas); len(out[i].ISR) == 0 {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "none of the brokers %v is "+
				"available to lead the partition", replicas)
		}
	}
	return out, nil
}

// alive is a new partition whose ISR are the replicas that may lead.
func (p *placement) alive(replicas []kafka.BrokerID) metadata.Partition {
	out := freshPartition(replicas)
	out.ISR = slices.DeleteFunc(slices.Clone(replicas), func(id kafka.BrokerID) bool {
		return !p.available[id]
	})
	if len(out.ISR) == len(replicas) {
		out.ISR = replicas
	}
	if len(out.ISR) > 0 {
		out.Leader = out.ISR[0]
	}
	return out
}

// admit checks the limits.
func (p *placement) admit(partitions, factor int) *kafka.Error {
	if p.partitions+partitions > maxPartitionsPerRequest {
		return refuse(kafka.ErrPolicyViolation, "one request may create %d partitions, and this "+
			"one asks for %d or more: spread it over several requests",
			maxPartitionsPerRequest, p.partitions+partitions)
	}
	room := 0
	for _, n := range p.room {
		room += n
	}
	if partitions*factor > room {
		return refuse(kafka.ErrPolicyViolation, "the %d broker(s) may hold %d more partition replicas "+
			"(max.partitions.per.broker=%d), and %d more are asked for: delete topics, raise the limit, or "+
			"add brokers", len(p.all), room, p.perNode, partitions*factor)
	}
	return nil
}

// fullBroker refuses a replica more on a broker.
func fullBroker(id kafka.BrokerID, limit int) *kafka.Error {
	return refuse(kafka.ErrPolicyViolation, "broker %d holds all the partition replicas that it may "+
		"(max.partitions.per.broker=%d): choose another, or raise the limit", id, limit)
}

// cordonedBroker refuses a replica on a broker that is to get no more.
func cordonedBroker(id kafka.BrokerID) *kafka.Error {
	return refuse(kafka.ErrInvalidReplicaAssignment, "broker %d is cordoned (cordoned.log.dirs), because it is "+
		"being drained: choose another, or have it take replicas again with strandline cluster drain --undo", id)
}

// commit counts partitions that are created indeed.
func (p *placement) commit(partitions []metadata.Partition) {
	p.partitions += len(partitions)
	p.next += len(partitions)
	for i := range partitions {
		take(p.room, partitions[i].Replicas)
	}
}

// freshPartition is a partition before anything happened to it.
func freshPartition(replicas []kafka.BrokerID) metadata.Partition {
	return metadata.Partition{Replicas: replicas, ISR: replicas, Leader: replicas[0]}
}
