package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// txnCommitTopicIDs is the first version of TxnOffsetCommit whose topics go by id.
const txnCommitTopicIDs = 6

// transactions are the offsets that were committed in transactions which have not
// ended. They are durable, as part of the transactions' batches: the marker decides.
//
// Invariant: a producer is in groups if and only if it has a pending offset in one of
// them.
type transactions struct {
	groups map[kafka.ProducerID]map[string]bool
}

// TxnOffsetCommit answers versions 0-6 of the request: the offsets count once the
// producer's transaction is committed. The host appends them as part of it, so the
// partition is part of the transaction already.
func (s *Shard) TxnOffsetCommit(c *Context, req *kmsg.TxnOffsetCommitRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	fx.Transaction = &shard.Transaction{
		ProducerID: kafka.ProducerID(req.ProducerID), ProducerEpoch: kafka.ProducerEpoch(req.ProducerEpoch),
		Guard: c.Guard,
	}
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	code := s.checkTxnCommit(req)
	for i := range req.Topics {
		t, r := &req.Topics[i], &resp.Topics[i]
		r.Topic, r.TopicID = t.Topic, t.TopicID
		r.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		known, topicCode := resolve(c.Topics, t.Topic, t.TopicID, req.Version >= txnCommitTopicIDs)
		if code != kafka.ErrNone {
			topicCode = code
		}
		for k := range t.Partitions {
			p := &t.Partitions[k]
			partitionCode := topicCode
			if partitionCode == kafka.ErrNone {
				partitionCode = s.appendCommit(req.Group, known, p.Partition, &Offset{
					Offset: kafka.Offset(p.Offset), LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch),
					Metadata: stringOf(p.Metadata), CommittedMs: c.NowMs, ExpiresMs: noExpiry, TopicID: known.id,
				}, fx)
			}
			r.Partitions[k].Partition, r.Partitions[k].ErrorCode = p.Partition, int16(partitionCode)
		}
	}
	fx.Reply(c.Caller, resp)
}

// checkTxnCommit says whether the sender may commit for the group. Clients of before
// KIP-447 do not say who they are: their transactional id fences them.
func (s *Shard) checkTxnCommit(req *kmsg.TxnOffsetCommitRequest) kafka.Code {
	if len(req.Group) > maxString {
		return kafka.ErrInvalidGroupID
	}
	g := s.groups[req.Group]
	named := req.Generation >= 0 || req.MemberID != "" || req.InstanceID != nil
	switch {
	case g == nil && req.Generation < 0:
		return kafka.ErrNone // Replay of the commit makes the group.
	case g == nil:
		return kafka.ErrIllegalGeneration
	case !named || req.Generation < 0 && g.state == Empty:
		return kafka.ErrNone
	}
	if _, code := g.find(req.MemberID, req.InstanceID); code != kafka.ErrNone {
		return code
	}
	if req.Generation != g.generation {
		return kafka.ErrIllegalGeneration
	}
	return kafka.ErrNone
}

// ReplayPending implements shard.Transactional.
func (s *Shard) ReplayPending(r shard.Record, producer kafka.ProducerID) error {
	k, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if k.kind == kindGroupMetadata || r.Value == nil {
		return &DecodeError{k.kind, "value", "only committed offsets can be part of a transaction"}
	}
	o, err := decodeOffset(k.kind, r.Value)
	if err != nil {
		return err
	}
	o.at = r.Offset
	g := s.groups[string(k.group)]
	if g == nil {
		g = s.create(string(k.group))
		g.stateSinceMs = r.TimestampMs
	}
	g.lastAppended, s.lastAppended = r.Offset, r.Offset
	at := kafka.TopicPartition{Topic: string(k.topic), Partition: k.partition}
	if g.unstable == nil {
		g.unstable = map[kafka.TopicPartition]map[kafka.ProducerID]Offset{}
	}
	if g.unstable[at] == nil {
		g.unstable[at] = map[kafka.ProducerID]Offset{}
	}
	g.unstable[at][producer] = o
	if s.transactions.groups == nil {
		s.transactions.groups = map[kafka.ProducerID]map[string]bool{}
	}
	if s.transactions.groups[producer] == nil {
		s.transactions.groups[producer] = map[string]bool{}
	}
	s.transactions.groups[producer][g.id] = true
	return nil
}

// EndTransaction implements shard.Transactional: the producer's offsets count from
// here on, or never will. One that was committed later, without a transaction or in
// another, stands.
func (s *Shard) EndTransaction(producer kafka.ProducerID, commit bool, marker kafka.Offset) {
	ids := slices.Sorted(maps.Keys(s.transactions.groups[producer]))
	delete(s.transactions.groups, producer)
	for _, id := range ids {
		g := s.groups[id]
		g.lastAppended, s.lastAppended = marker, marker
		for at, byProducer := range g.unstable {
			o, ok := byProducer[producer]
			if !ok {
				continue
			}
			g.settle(at, producer)
			now, ok := g.offsets[at.Topic][at.Partition]
			if commit && (!ok || o.at > now.at) {
				g.set(at.Topic, at.Partition, o)
			}
		}
		s.dropIfVoid(g)
	}
}

// settle forgets a pending offset.
func (g *group) settle(at kafka.TopicPartition, producer kafka.ProducerID) {
	delete(g.unstable[at], producer)
	if len(g.unstable[at]) == 0 {
		delete(g.unstable, at)
	}
}

// forgetPendingOffsets forgets the pending offsets in a partition.
func (s *Shard) forgetPendingOffsets(g *group, at kafka.TopicPartition) {
	producers := slices.Collect(maps.Keys(g.unstable[at]))
	delete(g.unstable, at)
	for _, producer := range producers {
		if g.hasPendingOf(producer) {
			continue
		}
		delete(s.transactions.groups[producer], g.id)
		if len(s.transactions.groups[producer]) == 0 {
			delete(s.transactions.groups, producer)
		}
	}
}

func (g *group) hasPendingOf(producer kafka.ProducerID) bool {
	for _, byProducer := range g.unstable {
		if _, ok := byProducer[producer]; ok {
			return true
		}
	}
	return false
}

// stability returns UNSTABLE_OFFSET_COMMIT if the outcome of a transaction decides about
// the committed offset (KIP-447), for those who ask for it.
func (g *group) stability(required bool, topic string, partition int32) kafka.Code {
	if required && g != nil && len(g.unstable[kafka.TopicPartition{Topic: topic, Partition: partition}]) > 0 {
		return kafka.ErrUnstableOffsetCommit
	}
	return kafka.ErrNone
}

// refuseTxnCommit fills a response with one code for each partition of the request.
func refuseTxnCommit(
	req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse, code kafka.Code,
) {
	for i := range req.Topics {
		t := kmsg.TxnOffsetCommitResponseTopic{Topic: req.Topics[i].Topic, TopicID: req.Topics[i].TopicID}
		for k := range req.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{
				Partition: req.Topics[i].Partitions[k].Partition, ErrorCode: int16(code),
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
}
