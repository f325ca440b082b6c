package api

import (
	"encoding/binary"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// A client that asks a broker that does not lead a partition is told who does, and
// where that broker is, so that it need not ask for metadata first (KIP-951: Produce
// from version 10 on, Fetch from 16 on).

// currentLeaders are the leaders that one answer names.
type currentLeaders struct {
	image *metadata.Image
	nodes []kafka.BrokerID
}

// currentLeader is a leader that a client should turn to.
type currentLeader struct {
	id    kafka.BrokerID
	epoch kafka.LeaderEpoch
}

// of returns the leader that a refused client should turn to, if the code is of that
// kind and the metadata names one.
func (c *currentLeaders) of(name string, id kafka.TopicID, partition int32, code kafka.Code) (currentLeader, bool) {
	if code != kafka.ErrNotLeaderOrFollower && code != kafka.ErrFencedLeaderEpoch {
		return currentLeader{}, false
	}
	topic := c.image.Topic(name)
	if topic == nil {
		topic = c.image.TopicByID(id)
	}
	p := topic.Partition(partition)
	if p == nil || p.Leader == kafka.NoBroker {
		return currentLeader{}, false
	}
	if !slices.Contains(c.nodes, p.Leader) {
		c.nodes = append(c.nodes, p.Leader)
	}
	return currentLeader{p.Leader, p.LeaderEpoch}, true
}

// currentLeader writes a partition's tagged fields: the leader under a tag.
func (e *encoder) currentLeader(tag int, l currentLeader) {
	e.uvarint(1)
	e.uvarint(tag)
	e.uvarint(4 + 4 + 1) // Its size.
	e.int32(int32(l.id))
	e.int32(int32(l.epoch))
	e.noTags()
}

// nodeEndpoints writes an answer's tagged fields: where the leaders are that it names.
func (e *encoder) nodeEndpoints(c *currentLeaders) {
	if len(c.nodes) == 0 {
		e.noTags()
		return
	}
	list := encoder{flexible: true}
	list.arrayLen(len(c.nodes))
	for _, id := range c.nodes {
		b, _ := c.image.Broker(id)
		list.int32(int32(id))
		list.string(b.Host)
		list.int32(b.Port)
		list.nullableString(b.Rack)
		list.noTags()
	}
	e.uvarint(1)
	e.uvarint(0) // The tag.
	e.dst = binary.AppendUvarint(e.dst, uint64(len(list.dst)))
	e.dst = append(e.dst, list.dst...)
}
