package controller

import (
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Eligible leader replicas (KIP-966). While a partition has fewer replicas in sync than
// min.insync.replicas asks for, its high watermark stands still: nothing is acknowledged
// to acks=all. So whoever left the ISR since it fell below has all that ever was, and may
// lead although it is not in sync:
//
//	ISR of at least min.insync.replicas:     nobody is eligible beside it
//	less, and a replica leaves the ISR:      it becomes eligible
//	an eligible one comes without its log:   it is last known, and no more than that
//
// A leader knows by the metadata that there are eligible replicas, and holds the high
// watermark as long as there are any, whatever min.insync.replicas says at that broker.
// So two brokers with different settings cost time, and never a record.

// levelOfEligible is the level of the metadata from which on there are eligible replicas.
const levelOfEligible = 3

// tend gives a partition the eligible replicas that follow from a change of its ISR.
// forgot is a replica that may have lost what it was in sync with; kafka.NoBroker for
// none.
func (s *State) tend(t *metadata.Topic, old, p *metadata.Partition, forgot kafka.BrokerID) {
	if len(old.Eligible)+len(old.LastEligible) == 0 && slices.Equal(old.ISR, p.ISR) ||
		s.image.Level() < levelOfEligible {
		return
	}
	if len(p.ISR) >= min(int(s.topicConfig(t).MinInsyncReplicas), len(p.Replicas)) {
		p.Eligible, p.LastEligible = nil, nil
		return
	}
	candidates := union(old.Eligible, old.ISR)
	last := union(old.LastEligible, candidates)
	p.Eligible = slices.DeleteFunc(candidates, func(id kafka.BrokerID) bool {
		return id == forgot || slices.Contains(p.ISR, id) || !slices.Contains(p.Replicas, id)
	})
	p.LastEligible = slices.DeleteFunc(last, func(id kafka.BrokerID) bool {
		return slices.Contains(p.Eligible, id) || slices.Contains(p.ISR, id) || !slices.Contains(p.Replicas, id)
	})
	if len(p.Eligible) == 0 {
		p.Eligible = nil
	}
	if len(p.LastEligible) == 0 {
		p.LastEligible = nil
	}
}

// forget takes a replica that lost what it was in sync with out of those that may lead.
// It reports whether others are left: in sync, or eligible, and then the first of those
// stands for the ISR, which is never empty.
func forget(p *metadata.Partition, id kafka.BrokerID) bool {
	if others := without(p.ISR, id); len(others) > 0 {
		p.ISR = others
		return true
	}
	eligible := without(p.Eligible, id)
	if len(eligible) == 0 {
		return false
	}
	p.ISR = eligible[:1]
	return true
}

// union returns a new list of all ids of both.
func union(a, b []kafka.BrokerID) []kafka.BrokerID {
	out := slices.Clone(a)
	for _, id := range b {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// minInSyncChanged decides what follows for eligible replicas from records that change
// configurations: where fewer replicas suffice from now on, nobody beside them is.
func (s *State) minInSyncChanged(records []metadata.Record) []metadata.Record {
	const option = "min.insync.replicas"
	touched := slices.ContainsFunc(records, func(r metadata.Record) bool {
		c, ok := r.(*metadata.ConfigChanged)
		if !ok {
			return false
		}
		_, set := c.Set[option]
		return set || slices.Contains(c.Remove, option)
	})
	if !touched {
		return records
	}
	image, _, err := s.image.Apply(records...)
	if err != nil {
		return records // Whoever applies them says so.
	}
	next := &State{opt: s.opt, image: image, broker: s.broker}
	if b, err := Sources(s.opt.Static, s.opt.Self, image).Broker(); err == nil {
		next.broker = b
	}
	more, _ := next.revise(maxMoves, func(*metadata.Topic, *metadata.Partition) kafka.BrokerID { return kafka.NoBroker })
	return append(records, more...)
}
