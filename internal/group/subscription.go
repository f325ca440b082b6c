package group

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// subscription is what the members of a group of consumers read, as far as their
// metadata tells. It is worked out when asked for.
type subscription struct {
	known  bool // topics is up to date.
	opaque bool // Some member's metadata could not be read.
	topics map[string]struct{}
}

func (s *subscription) forget() { *s = subscription{} }

// subscribed reports whether some member reads the topic. Metadata that cannot
// be read counts as a subscription to everything: nobody's offsets are deleted
// on a guess.
func (g *group) subscribed(topic string) bool {
	if g.protocolType != consumerProtocol || len(g.members) == 0 {
		return false
	}
	if g.state == PreparingRebalance || g.state == CompletingRebalance {
		return g.anyOffers(topic)
	}
	if !g.subscription.known {
		g.subscription = g.readSubscription()
	}
	_, ok := g.subscription.topics[topic]
	return ok || g.subscription.opaque
}

func (g *group) readSubscription() subscription {
	sub := subscription{known: true, topics: map[string]struct{}{}}
	for _, m := range g.members {
		topics, ok := SubscribedTopics(m.metadata(g.protocol))
		if !ok {
			sub.opaque = true
		}
		for _, topic := range topics {
			sub.topics[topic] = struct{}{}
		}
	}
	return sub
}

// anyOffers is subscribed for a group that has not chosen its protocol yet.
func (g *group) anyOffers(topic string) bool {
	for _, m := range g.members {
		for i := range m.protocols {
			topics, ok := SubscribedTopics(m.protocols[i].metadata)
			if !ok {
				return true
			}
			for _, t := range topics {
				if t == topic {
					return true
				}
			}
		}
	}
	return false
}

// SubscribedTopics reads the topics out of a consumer's member metadata. It
// returns false if the bytes are not such metadata. What follows the topics is
// not looked at: it differs between versions and clients.
func SubscribedTopics(metadata []byte) ([]string, bool) {
	const version, count, shortest = 2, 4, 2
	if len(metadata) < version+count {
		return nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(metadata[version:])))
	rest := metadata[version+count:]
	if n < 0 || n > len(rest)/shortest {
		return nil, false
	}
	topics := make([]string, 0, n)
	for range n {
		topic, tail, ok := cutString(rest)
		if !ok {
			return nil, false
		}
		topics, rest = append(topics, string(topic)), tail
	}
	return topics, true
}

// AssignedPartitions reads a consumer's assignment. It returns false if the bytes
// are not such an assignment.
func AssignedPartitions(assignment []byte) ([]kafka.TopicPartition, bool) {
	if len(assignment) == 0 {
		return nil, true // Nothing was assigned.
	}
	a := kmsg.NewConsumerMemberAssignment()
	if err := a.ReadFrom(assignment); err != nil {
		return nil, false
	}
	var all []kafka.TopicPartition
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			all = append(all, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	return all, true
}
