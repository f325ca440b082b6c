package commitlog

import (
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Config is what a topic's configuration says about a log. Milliseconds stay
// milliseconds here because Kafka gives -1 a meaning.
type Config struct {
	SegmentBytes           int64   // segment.bytes.
	SegmentMs              int64   // segment.ms.
	IndexIntervalBytes     int64   // index.interval.bytes.
	IndexMaxBytes          int64   // segment.index.bytes.
	RetentionMs            int64   // retention.ms; -1 keeps for ever.
	RetentionBytes         int64   // retention.bytes; -1 sets no limit.
	MaxMessageBytes        int     // max.message.bytes.
	MaxDecompressedBytes   int64   // Bound when a batch is looked into.
	FlushMessages          int64   // flush.messages; 1 syncs before every ack.
	FlushMs                int64   // flush.ms.
	LogAppendTime          bool    // message.timestamp.type.
	Delete                 bool    // cleanup.policy contains delete.
	Compact                bool    // cleanup.policy contains compact.
	DeleteRetentionMs      int64   // delete.retention.ms.
	MinCompactionLagMs     int64   // min.compaction.lag.ms.
	MaxCompactionLagMs     int64   // max.compaction.lag.ms.
	MinCleanableDirtyRatio float64 // min.cleanable.dirty.ratio.
	ProducerExpirationMs   int64   // producer.id.expiration.ms.
}

// DefaultConfig returns Kafka's defaults, except that every append is synced
// before its ack.
func DefaultConfig() Config {
	const day = 24 * int64(time.Hour/time.Millisecond)
	return Config{
		SegmentBytes:           1 << 30,
		SegmentMs:              7 * day,
		IndexIntervalBytes:     4096,
		IndexMaxBytes:          10 << 20,
		RetentionMs:            7 * day,
		RetentionBytes:         -1,
		MaxMessageBytes:        1<<20 + 12,
		MaxDecompressedBytes:   256 << 20,
		FlushMessages:          1,
		FlushMs:                1<<63 - 1,
		Delete:                 true,
		DeleteRetentionMs:      day,
		MaxCompactionLagMs:     1<<63 - 1,
		MinCleanableDirtyRatio: 0.5,
		ProducerExpirationMs:   day,
	}
}

// Options say how a broker uses one log.
type Options struct {
	Config Config
	// OnDurable is called without locks after everything below end became
	// durable. It must not block.
	OnDurable func(end kafka.Offset)
	// OnFailed is called once, without locks, when the log went offline.
	OnFailed func(error)
	// OnDamaged is called, again and again, when stored bytes are found not to be what
	// was written. The caller may hold locks of its own around a read that finds it, so
	// it must neither block nor take any. What was found before the log was opened
	// Damaged tells.
	OnDamaged func(error)
}

// AppendInfo tells where an append went.
type AppendInfo struct {
	BaseOffset      kafka.Offset
	LastOffset      kafka.Offset
	LogAppendTimeMs int64 // -1 when records keep the producer's time.
	LogStartOffset  kafka.Offset
	Duplicate       bool // The batch was there already; nothing was written.
	// LeaderEpoch is the epoch under which it was asked for. Package partition sets
	// it; whoever waits for an acknowledgement waits under it.
	LeaderEpoch kafka.LeaderEpoch
}
