package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// AlterPartitionReassignments decides about partitions that are to move to other
// brokers (KIP-455). A partition that moves has its old and its new replicas at the
// same time; when the new ones are in sync, the old ones leave, see completeMove.
// Without replicas, the request ends a move and undoes it.
func (s *State) AlterPartitionReassignments(
	req *kmsg.AlterPartitionAssignmentsRequest,
) (*kmsg.AlterPartitionAssignmentsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	m := &reassignment{
		State: s, ranks: s.ranks(), taken: map[kafka.BrokerID]int{},
		sameFactor: req.Version >= 1 && !req.AllowReplicationFactorChange,
	}
	for i := range req.Topics {
		rt := &req.Topics[i]
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = rt.Topic
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = rp.Partition
			p.ErrorCode, p.ErrorMessage = outcome(m.alter(rt.Topic, rp))
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, m.records()
}

// reassignment is the work on one request.
type reassignment struct {
	*State
	ranks      ranks
	sameFactor bool // The number of replicas may not change.
	// taken is how many replicas more each broker gets by this request.
	taken   map[kafka.BrokerID]int
	changed []*metadata.PartitionsChanged
}

func (m *reassignment) records() (out []metadata.Record) {
	for _, r := range m.changed {
		out = append(out, r)
	}
	return out
}

func (m *reassignment) alter(
	topic string, rp *kmsg.AlterPartitionAssignmentsRequestTopicPartition,
) *kafka.Error {
	t := m.image.Topic(topic)
	if t.Partition(rp.Partition) == nil {
		return refuse(kafka.ErrUnknownTopicOrPartition, "there is no partition %s-%d", topic, rp.Partition)
	}
	record := m.recordOf(t)
	if slices.ContainsFunc(record.Changes, func(c metadata.PartitionChange) bool {
		return c.Index == rp.Partition
	}) {
		return refuse(kafka.ErrInvalidRequest, "partition %s-%d is in the request twice: name it "+
			"once", topic, rp.Partition)
	}
	old := &t.Partitions[rp.Partition]
	p := *old
	var err *kafka.Error
	if rp.Replicas == nil {
		err = m.cancel(t, &p)
	} else {
		err = m.move(&p, rp.Replicas)
	}
	if err != nil {
		return err
	}
	m.tend(t, old, &p, kafka.NoBroker)
	if renew(old, &p) {
		record.Changes = append(record.Changes, metadata.PartitionChange{Index: rp.Partition, Partition: p})
		if len(record.Changes) == 1 {
			m.changed = append(m.changed, record)
		}
	}
	return nil
}

// recordOf returns the record of a topic's changes, which the request may name
// several times.
func (m *reassignment) recordOf(t *metadata.Topic) *metadata.PartitionsChanged {
	for _, r := range m.changed {
		if r.ID == t.ID {
			return r
		}
	}
	return &metadata.PartitionsChanged{ID: t.ID}
}

// move begins a move to replicas, in the place of one that may be going on.
func (m *reassignment) move(p *metadata.Partition, wanted []int32) *kafka.Error {
	target, err := m.target(wanted)
	if err != nil {
		return err
	}
	home := withoutAll(p.Replicas, p.Adding) // What it had before any move.
	if m.sameFactor && len(target) != len(home) {
		return refuse(kafka.ErrInvalidReplicationFactor, "the partition has %d replicas, and %d "+
			"are given: give as many, or allow the number to change", len(home), len(target))
	}
	fresh := withoutAll(target, p.Replicas)
	for _, id := range fresh {
		if m.cordoned(id) {
			return cordonedBroker(id)
		}
		if m.room(id) <= m.taken[id] {
			return fullBroker(id, int(m.broker.MaxPartitionsPerBroker))
		}
	}
	p.Adding, p.Removing = withoutAll(target, home), withoutAll(home, target)
	p.Replicas = append(target, p.Removing...)
	// Who was on the way in and is not any more may be in sync already.
	if isr := intersection(p.ISR, p.Replicas); len(isr) > 0 {
		p.ISR = isr
	} else {
		return refuse(kafka.ErrInvalidReplicaAssignment, "none of the brokers %v is in sync: "+
			"keep one of %v", target, p.ISR)
	}
	m.ranks.settleMove(p)
	for _, id := range fresh {
		m.taken[id]++
	}
	return nil
}

func (m *reassignment) target(wanted []int32) ([]kafka.BrokerID, *kafka.Error) {
	if len(wanted) == 0 {
		return nil, refuse(kafka.ErrInvalidReplicaAssignment, "the assignment names no replica")
	}
	target := make([]kafka.BrokerID, 0, len(wanted))
	for _, id := range wanted {
		id := kafka.BrokerID(id)
		if _, ok := m.image.Broker(id); !ok {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "there is no broker %d to hold "+
				"a replica", id)
		}
		if slices.Contains(target, id) {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "broker %d is named twice for "+
				"one partition", id)
		}
		target = append(target, id)
	}
	return target, nil
}

// cancel ends a move and gives the partition back the replicas it had.
func (m *reassignment) cancel(t *metadata.Topic, p *metadata.Partition) *kafka.Error {
	if !p.Moving() {
		return refuse(kafka.ErrNoReassignmentInProgress, "the partition does not move")
	}
	isr := withoutAll(p.ISR, p.Adding)
	if len(isr) == 0 {
		return refuse(kafka.ErrInvalidReplicaAssignment, "only replicas on the way in are in "+
			"sync (%v): without them, records of %s would be lost", p.ISR, t.Name)
	}
	p.Replicas, p.ISR = withoutAll(p.Replicas, p.Adding), isr
	p.Adding, p.Removing = nil, nil
	m.ranks.settle(p, false)
	return nil
}

// settleMove brings a move to its end if it can, and sees that the partition has a
// leader.
func (r ranks) settleMove(p *metadata.Partition) {
	if !r.completeMove(p) {
		r.settle(p, false)
	}
}

// completeMove ends a move when all replicas on the way in are in sync, and one
// that remains can lead. It reports whether it did.
func (r ranks) completeMove(p *metadata.Partition) bool {
	if !p.Moving() || p.Lost || len(withoutAll(p.Adding, p.ISR)) > 0 {
		return false
	}
	done := *p
	done.Replicas, done.ISR = p.Target(), withoutAll(p.ISR, p.Removing)
	done.Adding, done.Removing = nil, nil
	if len(done.ISR) == 0 {
		return false
	}
	r.settle(&done, false)
	if done.Leader == kafka.NoBroker {
		return false
	}
	*p = done
	return true
}

// ListPartitionReassignments lists partitions that move, from an image.
func ListPartitionReassignments(
	image *metadata.Image, req *kmsg.ListPartitionReassignmentsRequest,
) *kmsg.ListPartitionReassignmentsResponse {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	list := func(t *metadata.Topic, wanted func(i int32) bool) {
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Moving() && wanted(int32(i)) {
				out.Partitions = append(out.Partitions, describeMove(int32(i), p))
			}
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if req.Topics == nil {
		for t := range image.AllTopics() {
			list(t, func(int32) bool { return true })
		}
	}
	for _, rt := range req.Topics {
		if t := image.Topic(rt.Topic); t != nil {
			list(t, func(i int32) bool { return slices.Contains(rt.Partitions, i) })
		}
	}
	return resp
}

func describeMove(i int32, p *metadata.Partition) kmsg.ListPartitionReassignmentsResponseTopicPartition {
	out := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
	out.Partition = i
	for _, list := range []struct {
		to   *[]int32
		from []kafka.BrokerID
	}{
		{&out.Replicas, p.Replicas}, {&out.AddingReplicas, p.Adding}, {&out.RemovingReplicas, p.Removing},
	} {
		*list.to = make([]int32, 0, len(list.from))
		for _, id := range list.from {
			*list.to = append(*list.to, int32(id))
		}
	}
	return out
}

// withoutAll returns those of ids that are not in others, nil for none.
func withoutAll(ids, others []kafka.BrokerID) (out []kafka.BrokerID) {
	for _, id := range ids {
		if !slices.Contains(others, id) {
			out = append(out, id)
		}
	}
	return out
}

// intersection returns those of ids that are in others too; ids itself where it is
// all of them.
func intersection(ids, others []kafka.BrokerID) []kafka.BrokerID {
	if len(withoutAll(ids, others)) == 0 {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id kafka.BrokerID) bool {
		return !slices.Contains(others, id)
	})
}
