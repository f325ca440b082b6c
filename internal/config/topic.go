package config

import "slices"

// Topic is how one topic is to be kept. Quantities that records carry as
// milliseconds stay in them: Kafka's "for ever" is 2^63-1 ms, which no Duration
// holds. A Topic is not changed after it was made.
type Topic struct {
	cleanupPolicy // cleanup.policy.

	// Limits of what a producer may send.
	MaxMessageBytes             int32         // max.message.bytes.
	MaxDecompressedMessageBytes int32         // max.decompressed.message.bytes.
	MessageTimestampType        TimestampType // message.timestamp.type.
	MessageTimestampBeforeMaxMs int64         // message.timestamp.before.max.ms.
	MessageTimestampAfterMaxMs  int64         // message.timestamp.after.max.ms.
	MinInsyncReplicas           int32         // min.insync.replicas.

	// Retries over HTTP.
	IdempotencyWindowMs int64 // idempotency.window.ms.
	IdempotencyMaxKeys  int32 // idempotency.max.keys.

	// Segments and what becomes of them.
	SegmentBytes       int32 // segment.bytes.
	SegmentMs          int64 // segment.ms.
	SegmentJitterMs    int64 // segment.jitter.ms.
	SegmentIndexBytes  int32 // segment.index.bytes.
	IndexIntervalBytes int32 // index.interval.bytes.
	RetentionMs        int64 // retention.ms; -1 keeps for ever.
	RetentionBytes     int64 // retention.bytes; negative sets no limit.
	FileDeleteDelayMs  int64 // file.delete.delay.ms.
	Preallocate        bool  // preallocate.
	FlushMessages      int64 // flush.messages; 1 syncs before every ack.
	FlushMs            int64 // flush.ms.

	// Compaction.
	DeleteRetentionMs      int64   // delete.retention.ms.
	MinCompactionLagMs     int64   // min.compaction.lag.ms.
	MaxCompactionLagMs     int64   // max.compaction.lag.ms.
	MinCleanableDirtyRatio float64 // min.cleanable.dirty.ratio.

	UncleanLeaderElectionEnable bool     // unclean.leader.election.enable.
	LeaderThrottledReplicas     []string // leader.replication.throttled.replicas.
	FollowerThrottledReplicas   []string // follower.replication.throttled.replicas.
}

// cleanupPolicy is cleanup.policy; with neither, everything is kept for ever.
type cleanupPolicy struct {
	CleanupDelete  bool // cleanup.policy contains delete.
	CleanupCompact bool // cleanup.policy contains compact.
}

func parseCleanup(items []string) cleanupPolicy {
	return cleanupPolicy{
		CleanupDelete:  slices.Contains(items, "delete"),
		CleanupCompact: slices.Contains(items, "compact"),
	}
}

// LogAppendTime says whether records get the broker's time.
func (t *Topic) LogAppendTime() bool { return t.MessageTimestampType == LogAppendTime }

// TimestampType is message.timestamp.type.
type TimestampType string

// The values of message.timestamp.type.
const (
	CreateTime    TimestampType = "CreateTime"
	LogAppendTime TimestampType = "LogAppendTime"
)
