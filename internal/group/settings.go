package group

import (
	"math"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Settings are the broker options that groups obey, by Kafka's names.
type Settings struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms.
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms.
	MaxSize               int           // group.max.size.
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms.
	OffsetMetadataMax     int           // offset.metadata.max.bytes.
	OffsetsRetention      time.Duration // offsets.retention.minutes.
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms.

	// MaxPendingMembers bounds the member ids of a shard that were handed out and
	// have not joined yet: each costs a stranger one small request.
	MaxPendingMembers int
}

// DefaultSettings are Kafka's defaults, but for the initial rebalance delay: one
// broker's groups are small more often than not, and a consumer that starts
// alone should not wait three seconds for company.
func DefaultSettings() Settings {
	return Settings{
		MinSessionTimeout: 6 * time.Second,
		MaxSessionTimeout: 30 * time.Minute,
		MaxSize:           math.MaxInt32,
		OffsetMetadataMax: 4096,
		OffsetsRetention:  7 * 24 * time.Hour,
		RetentionCheck:    10 * time.Minute,
		MaxPendingMembers: 10_000,
	}
}

// Topics resolves topics against the metadata image.
type Topics interface {
	// Topic returns the id and the number of partitions of a topic.
	Topic(name string) (id kafka.TopicID, partitions int32, ok bool)
	// TopicName returns the name of a topic.
	TopicName(id kafka.TopicID) (name string, ok bool)
}

// Options make a Shard.
type Options struct {
	Settings Settings
	// NewUUID returns random bytes for a member id; the machine has no source of
	// its own.
	NewUUID func() [16]byte
	// Topics are the topics there are when the shard is loaded, as of when this
	// broker became its coordinator or later; nil if nobody knows. Offsets in
	// others are deleted: their topics went while nobody was there to see it.
	Topics Topics
}
