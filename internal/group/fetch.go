package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// The first versions of OffsetFetch with a feature.
const (
	fetchGroups   = 8  // KIP-709: several groups.
	fetchTopicIDs = 10 // KIP-848: topics go by id.
)

// OffsetFetch answers versions 1-10 of the request, whose groups must all be of
// this shard (see FetchGroup). The answer waits until what it tells is committed.
//
// RequireStable (KIP-447) asks not to be told an offset that an open transaction may
// replace: UNSTABLE_OFFSET_COMMIT tells the client to ask again.
func (s *Shard) OffsetFetch(c *Context, req *kmsg.OffsetFetchRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	fx.Reply(c.Caller, resp)
	if req.Version >= fetchGroups {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, s.FetchGroup(c, req, &req.Groups[i], fx))
		}
		return
	}
	g := s.groupToRead(req.Group, fx)
	if req.Topics == nil {
		for _, name := range g.topics(c.Topics) {
			t := kmsg.OffsetFetchResponseTopic{Topic: name}
			for _, p := range g.partitions(c.Topics, name) {
				t.Partitions = append(t.Partitions, g.told(c.Topics, name, p, req.RequireStable))
			}
			resp.Topics = append(resp.Topics, t)
		}
		return
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, r := &req.Topics[i], &resp.Topics[i]
		r.Topic = t.Topic
		r.Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))
		for k, p := range t.Partitions {
			r.Partitions[k] = g.told(c.Topics, t.Topic, p, req.RequireStable)
		}
	}
}

// told is a committed offset as versions below 8 tell it.
func (g *group) told(
	topics Topics, topic string, partition int32, stable bool,
) kmsg.OffsetFetchResponseTopicPartition {
	o, code := noOffset(), g.stability(stable, topic, partition)
	if code == kafka.ErrNone {
		o = g.offset(topics, topic, partition)
	}
	return kmsg.OffsetFetchResponseTopicPartition{
		Partition: partition, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch),
		Metadata: &o.Metadata, ErrorCode: int16(code),
	}
}

// FetchGroup answers for one group of an OffsetFetch request of version 8 or
// later. The answer may be given when fx.MinHighWatermark is reached.
func (s *Shard) FetchGroup(
	c *Context, all *kmsg.OffsetFetchRequest, req *kmsg.OffsetFetchRequestGroup, fx *shard.Effects,
) kmsg.OffsetFetchResponseGroup {
	byID := all.Version >= fetchTopicIDs
	resp := kmsg.OffsetFetchResponseGroup{Group: req.Group}
	g := s.groupToRead(req.Group, fx)
	if req.Topics == nil {
		for _, name := range g.topics(c.Topics) {
			known, code := resolve(c.Topics, name, kafka.TopicID{}, false)
			if byID && (code != kafka.ErrNone || known.id.IsZero()) {
				continue // There is no id to call it by.
			}
			resp.Topics = append(resp.Topics, kmsg.OffsetFetchResponseGroupTopic{
				Topic: name, TopicID: known.id,
				Partitions: g.fetched(c.Topics, name, g.partitions(c.Topics, name), all.RequireStable),
			})
		}
		return resp
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(req.Topics))
	for i := range req.Topics {
		t, r := &req.Topics[i], &resp.Topics[i]
		r.Topic, r.TopicID = t.Topic, t.TopicID
		name, code := t.Topic, kafka.ErrNone
		if byID {
			var known topic
			known, code = resolve(c.Topics, "", t.TopicID, true)
			name = known.name
		}
		if code != kafka.ErrNone {
			r.Partitions = notFetched(t.Partitions, code)
			continue
		}
		r.Partitions = g.fetched(c.Topics, name, t.Partitions, all.RequireStable)
	}
	return resp
}

// notFetched tells of partitions of a topic that is not there.
func notFetched(partitions []int32, code kafka.Code) []kmsg.OffsetFetchResponseGroupTopicPartition {
	all := make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(partitions))
	for i, p := range partitions {
		o := noOffset()
		all[i] = kmsg.OffsetFetchResponseGroupTopicPartition{
			Partition: p, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch),
			Metadata: &o.Metadata, ErrorCode: int16(code),
		}
	}
	return all
}

func (g *group) fetched(
	topics Topics, topic string, partitions []int32, stable bool,
) []kmsg.OffsetFetchResponseGroupTopicPartition {
	all := make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(partitions))
	for i, p := range partitions {
		o, code := noOffset(), g.stability(stable, topic, p)
		if code == kafka.ErrNone {
			o = g.offset(topics, topic, p)
		}
		all[i] = kmsg.OffsetFetchResponseGroupTopicPartition{
			Partition: p, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch),
			Metadata: &o.Metadata, ErrorCode: int16(code),
		}
	}
	return all
}

// groupToRead returns a group, or nil, and holds the reply back until all that
// was appended about it is committed: otherwise a reader could see an offset that
// a crash takes back.
func (s *Shard) groupToRead(id string, fx *shard.Effects) *group {
	g := s.groups[id]
	if g == nil {
		fx.WaitFor(s.lastAppended) // It may just have been deleted.
		return nil
	}
	fx.WaitFor(g.lastAppended)
	return g
}

func noOffset() Offset {
	return Offset{Offset: kafka.NoOffset, LeaderEpoch: kafka.NoLeaderEpoch, ExpiresMs: noExpiry}
}

// offset returns the committed offset, or one of kafka.NoOffset. An offset in
// another incarnation of the topic is none: it would be a place in the wrong log.
func (g *group) offset(topics Topics, topic string, partition int32) Offset {
	if g == nil {
		return noOffset()
	}
	o, ok := g.offsets[topic][partition]
	if !ok || o.stale(topics, topic) {
		return noOffset()
	}
	return o
}

// stale reports whether the offset is of a topic that was deleted and created
// again.
func (o *Offset) stale(topics Topics, topic string) bool {
	if topics == nil || o.TopicID.IsZero() {
		return false
	}
	id, _, ok := topics.Topic(topic)
	return ok && id != o.TopicID
}

// topics returns the topics with offsets that are not stale, sorted.
func (g *group) topics(topics Topics) []string {
	if g == nil {
		return nil
	}
	var names []string
	for name, partitions := range g.offsets {
		for _, o := range partitions {
			if !o.stale(topics, name) {
				names = append(names, name)
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// partitions returns the partitions of a topic with offsets that are not stale,
// sorted.
func (g *group) partitions(topics Topics, topic string) []int32 {
	all := make([]int32, 0, len(g.offsets[topic]))
	for p, o := range g.offsets[topic] {
		if !o.stale(topics, topic) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// CommittedOffset is an offset with its place.
type CommittedOffset struct {
	kafka.TopicPartition
	Offset
}

// Offsets returns a group's committed offsets in order. It is for whoever does
// not speak the protocol; the caller waits for fx.MinHighWatermark.
func (s *Shard) Offsets(id string, topics Topics, fx *shard.Effects) []CommittedOffset {
	g := s.groupToRead(id, fx)
	if g == nil {
		return nil
	}
	var all []CommittedOffset
	for name, partitions := range g.offsets {
		for p, o := range partitions {
			if !o.stale(topics, name) {
				all = append(all, CommittedOffset{kafka.TopicPartition{Topic: name, Partition: p}, o})
			}
		}
	}
	slices.SortFunc(all, func(a, b CommittedOffset) int {
		return a.TopicPartition.Compare(b.TopicPartition)
	})
	return all
}
