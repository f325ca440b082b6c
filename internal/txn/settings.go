package txn

import (
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Settings are the broker options that transactions obey, by Kafka's names.
type Settings struct {
	MaxTimeout time.Duration // transaction.max.timeout.ms.
	Expiration time.Duration // transactional.id.expiration.ms.

	// ParkTimeout is how long a request waits for markers to be written before it is
	// refused with CONCURRENT_TRANSACTIONS, and MaxParked how many may wait for those
	// of one transactional id.
	ParkTimeout time.Duration
	MaxParked   int

	// MaxOnce bounds the transactional ids that the broker makes (see OncePrefix), in each
	// partition of __transaction_state. One takes 300 bytes.
	MaxOnce int
}

// DefaultSettings are Kafka's defaults.
func DefaultSettings() Settings {
	return Settings{
		MaxTimeout: 15 * time.Minute, Expiration: 7 * 24 * time.Hour,
		ParkTimeout: time.Second, MaxParked: 64, MaxOnce: 4096,
	}
}

// appendRetry is how long Tick rests after an append has failed.
const appendRetry = 100 * time.Millisecond

// Options make a Shard.
type Options struct {
	Settings Settings
	// CoordinatorEpoch is the leader epoch of the shard's partition, which markers
	// carry: partitions refuse those of an older coordinator.
	CoordinatorEpoch int32
	// Sender gets a *Markers for each transaction that ends.
	Sender shard.Caller
}

// Context is what comes with a request.
type Context struct {
	NowMs  int64
	Caller shard.Caller // Who gets the reply.
	// ProducerID is one that was never given out, or kafka.NoProducerID: the reply to
	// a request that needs one is then NeedProducerID.
	ProducerID kafka.ProducerID
	// NoLibrary says that the client has none: one that has knows that there is nothing to
	// commit, and is fenced where it commits what was aborted; others ask, and are told.
	NoLibrary bool
	// Offsets is the partition of __consumer_offsets that the group of an
	// AddOffsetsToTxn belongs to.
	Offsets kafka.TopicPartition
}

// NeedProducerID is the reply to a request that is to be made again with a producer
// id in its Context. Nothing was done.
type NeedProducerID struct{}

// Markers is an order to the sender: the decision about a transaction, and the
// partitions that are to have it. No partitions means that there is nothing to do.
type Markers struct {
	ID               string
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Commit           bool
	Version          int16 // Of the client's transactions.
	// Decision is the offset of the record of the decision. It rises from one decision
	// about a transactional id to the next, whoever coordinates it.
	Decision   kafka.Offset
	Partitions []kafka.TopicPartition
}
