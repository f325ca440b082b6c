// Package kafka is the vocabulary of Strandline: the types for quantities that
// must never be mixed up, and Kafka's error codes.
//
// It holds plain values only. It assumes nothing, imports nothing of ours, and
// every room may import it. There is deliberately no behaviour here beyond
// formatting and parsing of the values.
package kafka

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Offset is the position of a record in a partition's log. It never counts
// bytes: a byte count into a file is called a position.
type Offset int64

// NoOffset is the value the protocol uses for "no offset known".
const NoOffset Offset = -1

// LeaderEpoch counts the leaders of one partition; it is stamped in every
// batch.
type LeaderEpoch int32

// NoLeaderEpoch is the value the protocol uses for "no leader epoch known".
const NoLeaderEpoch LeaderEpoch = -1

// PartitionEpoch counts the changes of a partition's ISR and assignment.
type PartitionEpoch int32

// BrokerID identifies a broker (node.id).
type BrokerID int32

// NoBroker stands for "no broker", as in a partition without a leader.
const NoBroker BrokerID = -1

// AnyCopy is the replica id of a Fetch that takes what a replica has, leader or not, up to
// its high watermark. Kafka has it for debugging; a broker mends a damaged log so.
const AnyCopy BrokerID = -2

// BrokerEpoch identifies one registration of a broker.
type BrokerEpoch int64

// ProducerID identifies an idempotent or transactional producer.
type ProducerID int64

// NoProducerID marks a batch of a producer that is not idempotent.
const NoProducerID ProducerID = -1

// ProducerEpoch fences older instances of a producer id.
type ProducerEpoch int16

// TopicID identifies one incarnation of a topic; a topic that is deleted and
// created again has another one.
type TopicID [16]byte

// IsZero reports whether the id is unset.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String returns the id as Kafka prints it: unpadded URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Hex returns the id in lower-case hexadecimal, safe for a file name on any
// file system, case-insensitive ones included.
func (id TopicID) Hex() string { return hex.EncodeToString(id[:]) }

// ParseTopicIDHex is the inverse of Hex.
func ParseTopicIDHex(s string) (TopicID, error) {
	var id TopicID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("topic id %q: want %d hexadecimal digits", s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("topic id %q: %w", s, err)
	}
	return id, nil
}

// ParseTopicID is the inverse of String.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return id, fmt.Errorf("topic id %q: %w", s, err)
	}
	if len(b) != len(id) {
		return id, errors.New("topic id: want 16 bytes")
	}
	copy(id[:], b)
	return id, nil
}

// TopicPartition names a partition the way clients do.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns topic-partition, as in orders-3.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// Compare orders partitions by topic, then by number: negative if tp is before other, 0 if they
// are the same.
func (tp TopicPartition) Compare(other TopicPartition) int {
	return cmp.Or(strings.Compare(tp.Topic, other.Topic), cmp.Compare(tp.Partition, other.Partition))
}

// TopicIDPartition names a partition of one incarnation of a topic. It is the
// identity that storage uses.
type TopicIDPartition struct {
	ID        TopicID
	Partition int32
}

// String returns the topic id and the partition.
func (tp TopicIDPartition) String() string { return fmt.Sprintf("%s-%d", tp.ID, tp.Partition) }
