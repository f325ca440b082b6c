package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// The first versions of OffsetCommit with a feature.
const (
	commitUnknownGroupCode = 9  // KIP-848: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION.
	commitTopicIDs         = 10 // KIP-848: topics go by id.
)

// OffsetCommit answers versions 2-10 of the request: from members, and from
// anybody (generation -1, no member id) while the group is empty or unknown.
func (s *Shard) OffsetCommit(c *Context, req *kmsg.OffsetCommitRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	code := s.checkCommit(c.NowMs, req)
	for i := range req.Topics {
		t := &req.Topics[i]
		r := &resp.Topics[i]
		r.Topic, r.TopicID = t.Topic, t.TopicID
		r.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		topic, topicCode := resolve(c.Topics, t.Topic, t.TopicID, req.Version >= commitTopicIDs)
		if code != kafka.ErrNone {
			topicCode = code
		}
		for k := range t.Partitions {
			p := &t.Partitions[k]
			r.Partitions[k].Partition = p.Partition
			partitionCode := topicCode
			if partitionCode == kafka.ErrNone {
				partitionCode = s.commit(c.NowMs, req, topic, p, fx)
			}
			r.Partitions[k].ErrorCode = int16(partitionCode)
		}
	}
	fx.Reply(c.Caller, resp)
}

// commit adds the record of one partition's commit.
func (s *Shard) commit(
	nowMs int64, req *kmsg.OffsetCommitRequest, topic topic,
	p *kmsg.OffsetCommitRequestTopicPartition, fx *shard.Effects,
) kafka.Code {
	o := Offset{
		Offset: kafka.Offset(p.Offset), LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch),
		Metadata: stringOf(p.Metadata), CommittedMs: nowMs, ExpiresMs: noExpiry, TopicID: topic.id,
	}
	if req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		o.ExpiresMs = nowMs + req.RetentionTimeMillis
	}
	return s.appendCommit(req.Group, topic, p.Partition, &o, fx)
}

// appendCommit adds the record of a committed offset, if it may be one.
func (s *Shard) appendCommit(
	group string, topic topic, partition int32, o *Offset, fx *shard.Effects,
) kafka.Code {
	switch {
	case !topic.has(partition):
		return kafka.ErrUnknownTopicOrPartition
	case len(o.Metadata) > min(s.settings.OffsetMetadataMax, maxString):
		return kafka.ErrOffsetMetadataTooLarge
	}
	fx.Append(
		func(dst []byte) []byte { return appendOffsetKey(dst, group, topic.name, partition) },
		func(dst []byte) []byte { return appendOffsetValue(dst, o) },
	)
	return kafka.ErrNone
}

// checkCommit says whether the sender may commit for the group. A member that
// may is alive.
func (s *Shard) checkCommit(nowMs int64, req *kmsg.OffsetCommitRequest) kafka.Code {
	if len(req.Group) > maxString {
		return kafka.ErrInvalidGroupID
	}
	g := s.groups[req.Group]
	if g == nil {
		switch {
		case req.Generation < 0:
			return kafka.ErrNone // Replay of the commit makes the group.
		case req.Version >= commitUnknownGroupCode:
			return kafka.ErrGroupIDNotFound
		}
		return kafka.ErrIllegalGeneration
	}
	if req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil {
		if g.state == Empty {
			return kafka.ErrNone
		}
		return kafka.ErrUnknownMemberID
	}
	if req.Generation < 0 && g.state == Empty {
		return kafka.ErrNone
	}
	m, code := g.find(req.MemberID, req.InstanceID)
	switch {
	case code != kafka.ErrNone:
		return code
	case req.Generation != g.generation:
		return kafka.ErrIllegalGeneration
	}
	s.alive(g, m, nowMs)
	if g.state == CompletingRebalance {
		// The member knows its generation from the join, so it is entitled; but
		// what it owns is just being decided.
		return kafka.ErrRebalanceInProgress
	}
	return kafka.ErrNone
}

// topic is a topic as the metadata image knows it.
type topic struct {
	name       string
	id         kafka.TopicID
	partitions int32 // -1 if nobody knows.
}

func (t topic) has(partition int32) bool {
	return partition >= 0 && (t.partitions < 0 || partition < t.partitions)
}

// resolve finds a topic by its name or, if byID, by its id.
func resolve(topics Topics, name string, id kafka.TopicID, byID bool) (topic, kafka.Code) {
	unknown := kafka.ErrUnknownTopicOrPartition
	if byID {
		unknown = kafka.ErrUnknownTopicID
		if topics == nil || id.IsZero() {
			return topic{}, unknown
		}
		var ok bool
		if name, ok = topics.TopicName(id); !ok {
			return topic{}, unknown
		}
	}
	if topics == nil {
		if name == "" || len(name) > maxString {
			return topic{}, unknown
		}
		return topic{name: name, partitions: -1}, kafka.ErrNone
	}
	current, partitions, ok := topics.Topic(name)
	if !ok || byID && current != id {
		return topic{}, unknown
	}
	return topic{name, current, partitions}, kafka.ErrNone
}
