package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// AlterPartition decides about changes of ISRs that a leader wants. It is a
// compare-and-set on the leader epoch and the partition epoch (KIP-497), and from
// version 3 on on the members' broker epochs too (KIP-903). A change after which all
// replicas on the way in are in sync ends the partition's move.
//
// Unlike in Kafka, a replica may also ask for an ISR without itself, the leader or any
// other: it resigns, because its log is damaged or its disk hangs. It is not eligible
// then either (KIP-966), and the next leader comes from those that are left. Where nobody
// is left it is refused. The leader epoch is a new one each time: a fetch that the replica
// sent before counts for nothing after it.
func (s *State) AlterPartition(
	req *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	if err := s.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode = int16(err.Code)
		return resp, nil
	}
	var records []metadata.Record
	for i := range req.Topics {
		rt := &req.Topics[i]
		out := kmsg.NewAlterPartitionResponseTopic()
		out.Topic, out.TopidID = rt.Topic, rt.TopicID
		t, unknown := s.alteredTopic(req.Version, rt)
		record := &metadata.PartitionsChanged{}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			if t == nil {
				refused := kmsg.NewAlterPartitionResponseTopicPartition()
				refused.Partition, refused.ErrorCode = rp.Partition, int16(unknown)
				out.Partitions = append(out.Partitions, refused)
				continue
			}
			record.ID = t.ID
			out.Partitions = append(out.Partitions, s.alterPartition(req, t, rp, record))
		}
		if len(record.Changes) > 0 {
			records = append(records, record)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, records
}

func (s *State) alteredTopic(
	version int16, rt *kmsg.AlterPartitionRequestTopic,
) (*metadata.Topic, kafka.Code) {
	if version >= 2 {
		return s.image.TopicByID(rt.TopicID), kafka.ErrUnknownTopicID
	}
	return s.image.Topic(rt.Topic), kafka.ErrUnknownTopicOrPartition
}

func (s *State) alterPartition(
	req *kmsg.AlterPartitionRequest, t *metadata.Topic,
	rp *kmsg.AlterPartitionRequestTopicPartition, record *metadata.PartitionsChanged,
) kmsg.AlterPartitionResponseTopicPartition {
	out := kmsg.NewAlterPartitionResponseTopicPartition()
	out.Partition = rp.Partition
	twice := slices.ContainsFunc(record.Changes, func(c metadata.PartitionChange) bool {
		return c.Index == rp.Partition
	})
	old := t.Partition(rp.Partition)
	if old == nil || twice {
		out.ErrorCode = int16(kafka.ErrUnknownTopicOrPartition)
		if twice {
			out.ErrorCode = int16(kafka.ErrInvalidRequest)
		}
		return out
	}
	p := *old
	isr := wantedISR(req.Version, rp)
	if code := s.checkISR(req, &p, rp, isr); code != kafka.ErrNone {
		out.ErrorCode = int16(code)
		return out
	}
	resigned := s.alterISR(t, req, &p, isr)
	s.tend(t, old, &p, resigned)
	changed := renew(old, &p)
	if resigned != kafka.NoBroker {
		p.PartitionEpoch, p.LeaderEpoch, changed = old.PartitionEpoch+1, old.LeaderEpoch+1, true
	}
	if changed {
		change := metadata.PartitionChange{Index: rp.Partition, Partition: p}
		record.Changes = append(record.Changes, change)
	}
	if p.LeaderEpoch != old.LeaderEpoch {
		// The change has ended a move, or is a resignation: the rest is in the metadata.
		out.ErrorCode = int16(kafka.ErrNewLeaderElected)
		if req.Version < 2 {
			out.ErrorCode = int16(kafka.ErrFencedLeaderEpoch)
		}
		return out
	}
	out.LeaderID, out.LeaderEpoch = int32(p.Leader), int32(p.LeaderEpoch)
	out.PartitionEpoch = int32(p.PartitionEpoch)
	for _, id := range p.ISR {
		out.ISR = append(out.ISR, int32(id))
	}
	return out
}

// alterISR gives a partition the ISR that was asked for, and returns who resigned, or
// kafka.NoBroker.
func (s *State) alterISR(
	t *metadata.Topic, req *kmsg.AlterPartitionRequest, p *metadata.Partition, isr []kafka.BrokerID,
) kafka.BrokerID {
	self := kafka.BrokerID(req.BrokerID)
	if slices.Contains(isr, self) {
		if p.ISR = isr; p.Moving() {
			s.ranks().completeMove(p)
		}
		return kafka.NoBroker
	}
	p.ISR = isr
	if p.Leader == self {
		p.Leader = kafka.NoBroker
		s.ranks().settle(p, s.topicConfig(t).UncleanLeaderElectionEnable)
	}
	return self
}

func wantedISR(version int16, rp *kmsg.AlterPartitionRequestTopicPartition) []kafka.BrokerID {
	var isr []kafka.BrokerID
	if version >= 3 {
		for _, member := range rp.NewEpochISR {
			isr = append(isr, kafka.BrokerID(member.BrokerID))
		}
		return isr
	}
	for _, id := range rp.NewISR {
		isr = append(isr, kafka.BrokerID(id))
	}
	return isr
}

// checkISR is the order of checks that Kafka's controller has, since a leader
// treats each code differently.
func (s *State) checkISR(
	req *kmsg.AlterPartitionRequest, p *metadata.Partition,
	rp *kmsg.AlterPartitionRequestTopicPartition, isr []kafka.BrokerID,
) kafka.Code {
	leader, partition := kafka.LeaderEpoch(rp.LeaderEpoch), kafka.PartitionEpoch(rp.PartitionEpoch)
	switch {
	case leader > p.LeaderEpoch || partition > p.PartitionEpoch:
		return kafka.ErrNotController // The broker knows of a newer controller than this one.
	case leader < p.LeaderEpoch:
		return kafka.ErrFencedLeaderEpoch
	case kafka.BrokerID(req.BrokerID) != p.Leader && slices.Contains(isr, kafka.BrokerID(req.BrokerID)):
		return kafka.ErrInvalidRequest
	case partition < p.PartitionEpoch:
		return kafka.ErrInvalidUpdateVersion
	case !slices.Contains(isr, kafka.BrokerID(req.BrokerID)):
		return s.checkResignation(kafka.BrokerID(req.BrokerID), p, isr)
	}
	for i, id := range isr {
		if !slices.Contains(p.Replicas, id) || slices.Contains(isr[:i], id) {
			return kafka.ErrInvalidRequest
		}
		b, ok := s.image.Broker(id)
		if slices.Contains(p.ISR, id) {
			continue
		}
		if !ok || !b.Available() ||
			req.Version >= 3 && !epochMatches(b.Epoch, rp.NewEpochISR[i].BrokerEpoch) {
			return kafka.ErrIneligibleReplica
		}
	}
	return kafka.ErrNone
}

// checkResignation says what is wrong with an ISR without the replica that asks for it:
// it takes out itself alone, and leaves somebody who can lead.
func (s *State) checkResignation(self kafka.BrokerID, p *metadata.Partition, isr []kafka.BrokerID) kafka.Code {
	switch {
	case len(isr) == 0 || !slices.Contains(p.Replicas, self) || !slices.Equal(isr, without(p.ISR, self)):
		return kafka.ErrInvalidRequest
	case p.Leader == self && !slices.ContainsFunc(isr, func(id kafka.BrokerID) bool { return s.ranks()[id] >= unseen }):
		return kafka.ErrIneligibleReplica
	}
	return kafka.ErrNone
}

// epochMatches compares a member's broker epoch; -1 stands for a leader that does
// not know it.
func epochMatches(have kafka.BrokerEpoch, said int64) bool {
	return said == -1 || kafka.BrokerEpoch(said) == have
}
