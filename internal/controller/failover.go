package controller

import (
	"slices"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// rank is how far elections may count on a broker.
type rank int8

const (
	absent  rank = iota // Not registered, or fenced.
	leaving             // Shutting down: it goes on leading only where nobody else can.
	unseen              // Available, and not heard of since this node became the controller.
	present
)

// ranks are the ranks of brokers. Nobody, kafka.NoBroker, is absent.
type ranks map[kafka.BrokerID]rank

// ranks returns the ranks of all brokers, those of changed as if they were
// registered that way already.
func (s *State) ranks(changed ...metadata.Broker) ranks {
	out := make(ranks, len(s.image.Brokers())+len(changed))
	for _, list := range [][]metadata.Broker{s.image.Brokers(), changed} {
		for i := range list {
			out[list[i].ID] = s.rank(&list[i])
		}
	}
	return out
}

func (s *State) rank(b *metadata.Broker) rank {
	switch {
	case b.Fenced:
		return absent
	case b.ShuttingDown:
		return leaving
	case s.opt.Seen != nil && !s.opt.Seen(b.ID):
		return unseen
	}
	return present
}

// available returns those of ids that may lead and be in sync; ids itself where
// it is all of them.
func (r ranks) available(ids []kafka.BrokerID) []kafka.BrokerID {
	gone := func(id kafka.BrokerID) bool { return r[id] < unseen }
	if !slices.ContainsFunc(ids, gone) {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), gone)
}

// best returns who of a partition's replicas is to lead: the first in their order
// that is a candidate, and before it the first that was heard of.
func (r ranks) best(p *metadata.Partition, candidates []kafka.BrokerID) kafka.BrokerID {
	best := kafka.NoBroker
	for _, id := range p.Replicas {
		if slices.Contains(candidates, id) && r[id] > max(r[best], leaving) {
			best = id
		}
	}
	return best
}

// settle gives a partition the leader and the ISR that follow from the brokers'
// ranks. The leader stays while it can; the next comes from the ISR, else from the
// eligible replicas (KIP-966), and from elsewhere only if that is allowed (unclean),
// which loses records; those that were eligible last come first then. A partition whose
// in-sync and eligible replicas are all gone keeps them, without a leader: each of them
// has all that was acknowledged, so the first that is back may lead.
func (r ranks) settle(p *metadata.Partition, unclean bool) {
	if !p.Lost {
		if live := r.available(p.ISR); len(live) > 0 {
			p.ISR = live
			if !slices.Contains(live, p.Leader) {
				p.Leader = r.best(p, live)
			}
			return
		}
		if leader := r.best(p, p.Eligible); leader != kafka.NoBroker {
			p.Leader, p.ISR = leader, []kafka.BrokerID{leader}
			return
		}
		if r[p.Leader] == leaving {
			return
		}
	}
	p.Leader = kafka.NoBroker
	if !unclean {
		return
	}
	p.Leader = r.best(p, p.LastEligible)
	if p.Leader == kafka.NoBroker {
		p.Leader = r.best(p, p.Replicas)
	}
	if p.Leader != kafka.NoBroker {
		p.ISR, p.Lost = []kafka.BrokerID{p.Leader}, false
	}
}

// maxMoves bounds the partitions of one decision that may be made in several, so
// that its entry fits the quorum's limit.
const maxMoves = 100_000

// revise offers each partition to f, as a copy to edit, and returns the records of
// those that f has changed. f also returns who has lost what it was in sync with, or
// kafka.NoBroker. They come with new epochs: a new leader epoch with
// every change of the leader, and where a replica has gone. It stops after limit
// changes and says whether it came to the end.
func (s *State) revise(
	limit int, f func(t *metadata.Topic, p *metadata.Partition) (forgot kafka.BrokerID),
) (records []metadata.Record, complete bool) {
	for t := range s.image.AllTopics() {
		var record *metadata.PartitionsChanged
		for i := range t.Partitions {
			p := t.Partitions[i]
			forgot := f(t, &p)
			s.tend(t, &t.Partitions[i], &p, forgot)
			if !renew(&t.Partitions[i], &p) {
				continue
			}
			if limit == 0 {
				return records, false
			}
			limit--
			if record == nil {
				record = &metadata.PartitionsChanged{
					ID: t.ID, Changes: make([]metadata.PartitionChange, 0, len(t.Partitions)-i),
				}
				records = append(records, record)
			}
			record.Changes = append(record.Changes, metadata.PartitionChange{
				Index: int32(i), Partition: p,
			})
		}
	}
	return records, true
}

// renew gives a partition the epochs that its changes ask for, and reports whether
// there are any.
func renew(old, p *metadata.Partition) bool {
	if old.Leader == p.Leader && old.Lost == p.Lost && slices.Equal(old.ISR, p.ISR) &&
		slices.Equal(old.Replicas, p.Replicas) && slices.Equal(old.Adding, p.Adding) &&
		slices.Equal(old.Removing, p.Removing) && slices.Equal(old.Eligible, p.Eligible) &&
		slices.Equal(old.LastEligible, p.LastEligible) {
		return false
	}
	p.PartitionEpoch = old.PartitionEpoch + 1
	gone := slices.ContainsFunc(old.Replicas, func(id kafka.BrokerID) bool {
		return !slices.Contains(p.Replicas, id)
	})
	if old.Leader != p.Leader || gone {
		p.LeaderEpoch = old.LeaderEpoch + 1
	}
	return true
}

// topicConfig returns a topic's options as they are now.
func (s *State) topicConfig(t *metadata.Topic) *config.Topic {
	if len(t.Config) == 0 {
		return &s.broker.Topic
	}
	return config.ResolveTopic(s.broker, t.Config)
}

// FenceBrokers decides about brokers that have failed: they may not lead nor be in
// sync from now on. One decision moves all that they lead, however much it is.
// With more than maxMoves partitions they are not fenced yet, and are to be
// fenced again.
func (s *State) FenceBrokers(ids []kafka.BrokerID) []metadata.Record {
	var fenced []metadata.Broker
	for _, id := range ids {
		if b, ok := s.image.Broker(id); ok && !b.Fenced {
			b.Fenced = true
			fenced = append(fenced, b)
		}
	}
	if len(fenced) == 0 {
		return nil
	}
	records, complete := s.withdraw(fenced...)
	if !complete {
		return records
	}
	for i := range fenced {
		records = append(records, changed(&fenced[i]))
	}
	return records
}

// changed is the record of what a registered broker may do now.
func changed(b *metadata.Broker) metadata.Record {
	return &metadata.BrokerChanged{
		ID: b.ID, Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.ShuttingDown,
	}
}

// withdraw settles the partitions that brokers lead or are in sync with, after
// those have changed for the worse.
func (s *State) withdraw(brokers ...metadata.Broker) (records []metadata.Record, complete bool) {
	ranks := s.ranks(brokers...)
	return s.revise(maxMoves, func(t *metadata.Topic, p *metadata.Partition) kafka.BrokerID {
		for i := range brokers {
			if slices.Contains(p.ISR, brokers[i].ID) {
				ranks.settle(p, s.topicConfig(t).UncleanLeaderElectionEnable)
				break
			}
		}
		return kafka.NoBroker
	})
}

// admit settles the partitions without a leader that a broker may lead, after it
// has become available.
func (s *State) admit(b metadata.Broker) []metadata.Record {
	ranks := s.ranks(b)
	records, _ := s.revise(maxMoves, func(t *metadata.Topic, p *metadata.Partition) kafka.BrokerID {
		if p.Leader == kafka.NoBroker && slices.Contains(p.Replicas, b.ID) {
			ranks.settle(p, s.topicConfig(t).UncleanLeaderElectionEnable)
		}
		return kafka.NoBroker
	})
	return records
}

// SettleLeaderless decides about partitions that have no leader and could have
// one: those whose topics allow unclean elections since a while ago.
func (s *State) SettleLeaderless() []metadata.Record {
	ranks := s.ranks()
	records, _ := s.revise(maxMoves, func(t *metadata.Topic, p *metadata.Partition) kafka.BrokerID {
		if p.Leader == kafka.NoBroker || ranks[p.Leader] == absent {
			ranks.settle(p, s.topicConfig(t).UncleanLeaderElectionEnable)
		}
		return kafka.NoBroker
	})
	return records
}
