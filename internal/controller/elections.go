package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// The types of elections in a request.
const (
	preferredElection int8 = 0
	uncleanElection   int8 = 1
)

// ElectLeaders decides about elections that somebody asks for: of the preferred
// replicas, or, for partitions without a leader, of whoever is there, in sync or
// not (KIP-460). A request that names no topics means all partitions, and is
// answered with those alone for which an election was needed.
func (s *State) ElectLeaders(
	req *kmsg.ElectLeadersRequest,
) (*kmsg.ElectLeadersResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	e := &election{State: s, ranks: s.ranks(), kind: req.ElectionType}
	if req.Version < 1 {
		e.kind = preferredElection // The only one there was.
	}
	if e.kind != preferredElection && e.kind != uncleanElection {
		resp.ErrorCode = int16(kafka.ErrInvalidRequest)
		return resp, nil
	}
	if req.Topics == nil {
		for t := range s.image.AllTopics() {
			e.topic(resp, t.Name, t, nil)
		}
	}
	named := map[string]bool{}
	for _, t := range req.Topics {
		if !named[t.Topic] {
			named[t.Topic] = true
			e.topic(resp, t.Topic, s.image.Topic(t.Topic), partitionsOf(req, t.Topic))
		}
	}
	return resp, e.records
}

// partitionsOf gathers the partitions of a topic, which a request may name several
// times.
func partitionsOf(req *kmsg.ElectLeadersRequest, topic string) []int32 {
	out := []int32{}
	for _, t := range req.Topics {
		if t.Topic == topic {
			out = append(out, t.Partitions...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// election is the work on one request.
type election struct {
	*State
	ranks   ranks
	kind    int8
	records []metadata.Record
}

// topic elects for partitions of a topic, nil for all that need it.
func (e *election) topic(
	resp *kmsg.ElectLeadersResponse, name string, t *metadata.Topic, partitions []int32,
) {
	out := kmsg.NewElectLeadersResponseTopic()
	out.Topic = name
	all := partitions == nil
	if all {
		for i := range t.Partitions {
			partitions = append(partitions, int32(i))
		}
	}
	record := &metadata.PartitionsChanged{}
	for _, i := range partitions {
		change, err := e.partition(name, t, i)
		if all && err != nil && err.Code == kafka.ErrElectionNotNeeded {
			continue
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition = i
		p.ErrorCode, p.ErrorMessage = outcome(err)
		out.Partitions = append(out.Partitions, p)
		if err == nil {
			record.ID = t.ID
			record.Changes = append(record.Changes, change)
		}
	}
	if len(record.Changes) > 0 {
		e.records = append(e.records, record)
	}
	if len(out.Partitions) > 0 {
		resp.Topics = append(resp.Topics, out)
	}
}

func (e *election) partition(
	name string, t *metadata.Topic, i int32,
) (metadata.PartitionChange, *kafka.Error) {
	old := t.Partition(i)
	if old == nil {
		return metadata.PartitionChange{}, refuse(kafka.ErrUnknownTopicOrPartition,
			"there is no partition %s-%d", name, i)
	}
	p := *old
	elect := e.preferred
	if e.kind == uncleanElection {
		elect = e.unclean
	}
	if err := elect(&p); err != nil {
		return metadata.PartitionChange{}, err
	}
	e.tend(t, old, &p, kafka.NoBroker)
	renew(old, &p)
	return metadata.PartitionChange{Index: i, Partition: p}, nil
}

func (e *election) preferred(p *metadata.Partition) *kafka.Error {
	want := p.Replicas[0]
	switch {
	case p.Leader == want:
		return refuse(kafka.ErrElectionNotNeeded, "broker %d, the preferred one, leads already", want)
	case !canLead(e.ranks, p, want):
		return refuse(kafka.ErrPreferredLeaderNotAvailable, "broker %d, the preferred one, is "+
			"not available or not in sync: its in-sync replicas are %v", want, p.ISR)
	}
	p.Leader = want
	return nil
}

// canLead says whether a replica may take over from a leader without a loss.
func canLead(r ranks, p *metadata.Partition, id kafka.BrokerID) bool {
	return !p.Lost && r[id] >= unseen && slices.Contains(p.ISR, id)
}

func (e *election) unclean(p *metadata.Partition) *kafka.Error {
	if p.Leader != kafka.NoBroker {
		return refuse(kafka.ErrElectionNotNeeded, "broker %d leads: only a partition without a "+
			"leader can get one that is not in sync", p.Leader)
	}
	e.ranks.settle(p, true)
	if p.Leader == kafka.NoBroker {
		return refuse(kafka.ErrEligibleLeadersNotAvailable, "none of the replicas %v is "+
			"available: start one of these brokers", p.Replicas)
	}
	return nil
}

// PreferLeaders gives leadership back to preferred replicas that are in sync, to
// at most limit of them at a time: every move costs its clients a moment.
func (s *State) PreferLeaders(limit int) []metadata.Record {
	ranks := s.ranks()
	records, _ := s.revise(limit, func(_ *metadata.Topic, p *metadata.Partition) kafka.BrokerID {
		want := p.Replicas[0]
		if p.Leader != want && ranks[want] == present && canLead(ranks, p, want) {
			p.Leader = want
		}
		return kafka.NoBroker
	})
	return records
}

// IsUnclean says whether a request asks for leaders that may lack records.
func IsUnclean(req *kmsg.ElectLeadersRequest) bool {
	return req.Version >= 1 && req.ElectionType == uncleanElection
}
