package config

import (
	"strconv"
	"strings"
)

const (
	forEver   = "9223372036854775807" // 2^63-1, Kafka's "for ever" and "no limit".
	oneDayMs  = "86400000"
	oneWeekMs = "604800000"
)

// topicOptions are the rows of the options of a topic; those of the broker's
// defaults follow from their synonyms.
func topicOptions() []Option {
	rows := retentionOptions()
	rows = append(rows, segmentOptions()...)
	rows = append(rows, recordOptions()...)
	rows = append(rows, compactionOptions()...)
	rows = append(rows, compressionOptions()...)
	rows = append(rows, replicationOptions()...)
	rows = append(rows, idempotencyOptions()...)
	return append(rows, remoteOptions()...)
}

func retentionOptions() []Option {
	return []Option{
		{
			Name: "cleanup.policy", Type: List, Default: "delete",
			Check:    anyOf("compact", "delete"),
			Synonyms: []Synonym{{Name: "log.cleanup.policy", Default: "delete"}},
			topic:    func(t *Topic) any { return &t.cleanupPolicy },
			Doc: "What becomes of old records: delete removes segments past retention.ms or " +
				"retention.bytes, compact keeps the latest record of every key, both together do " +
				"both, and an empty list keeps everything for ever.",
		},
		{
			Name: "retention.ms", Type: Long, Default: oneWeekMs, Check: atLeast(-1),
			Synonyms: []Synonym{
				{Name: "log.retention.ms"},
				{Name: "log.retention.minutes", Factor: msPerMinute, Type: Int},
				{Name: "log.retention.hours", Factor: msPerHour, Type: Int, Default: "168"},
			},
			topic: func(t *Topic) any { return &t.RetentionMs },
			Doc: "With cleanup.policy=delete, how long a record is kept at least; -1 keeps for " +
				"ever. Whole segments go, once their newest record is older.",
		},
		{
			Name: "retention.bytes", Type: Long, Default: "-1",
			Synonyms: []Synonym{{Name: "log.retention.bytes", Default: "-1"}},
			topic:    func(t *Topic) any { return &t.RetentionBytes },
			Doc: "With cleanup.policy=delete, how large a partition may grow before its oldest " +
				"segments go; negative sets no limit. It counts per partition, not per topic.",
		},
		{
			Name: "file.delete.delay.ms", Type: Long, Default: "60000",
			Check: atLeast(0), Stored: true,
			Synonyms: []Synonym{{Name: "log.segment.delete.delay.ms", Default: "60000"}},
			topic:    func(t *Topic) any { return &t.FileDeleteDelayMs },
			Doc: "Kept and shown without effect: files of deleted segments go as soon as no " +
				"fetch reads them, so no delay is needed.",
		},
		{
			Name: "flush.messages", Type: Long, Default: "1", Check: atLeast(1),
			Synonyms: []Synonym{{Name: "log.flush.interval.messages", Default: "1"}},
			topic:    func(t *Topic) any { return &t.FlushMessages },
			Doc: "After how many records a sync is due. 1, unlike Kafka's 2^63-1, means that " +
				"acks=all is answered after the records are on disk, and consumers see only what " +
				"is. Above 1 the answer does not wait for the disk, and records younger than the " +
				"last sync may be lost with the machine.",
		},
		{
			Name: "flush.ms", Type: Long, Default: forEver, Check: atLeast(0),
			Synonyms: []Synonym{
				{Name: "log.flush.interval.ms"},
				{Name: "log.flush.scheduler.interval.ms", Default: forEver},
			},
			topic: func(t *Topic) any { return &t.FlushMs },
			Doc:   "With flush.messages above 1, how long a record may wait for a sync.",
		},
	}
}

func segmentOptions() []Option {
	return []Option{
		{
			Name: "segment.bytes", Type: Int, Default: "1073741824", Check: atLeast(1 << 20),
			Synonyms: []Synonym{{Name: "log.segment.bytes", Default: "1073741824"}},
			topic:    func(t *Topic) any { return &t.SegmentBytes },
			Doc: "At what size a segment file is closed and the next begun. Retention and " +
				"compaction work on closed segments.",
		},
		{
			Name: "segment.ms", Type: Long, Default: oneWeekMs, Check: atLeast(1),
			Synonyms: []Synonym{
				{Name: "log.roll.ms"},
				{Name: "log.roll.hours", Factor: msPerHour, Type: Int, Default: "168"},
			},
			topic: func(t *Topic) any { return &t.SegmentMs },
			Doc: "At what age a segment file is closed though it is not full, so that retention " +
				"can take it.",
		},
		{
			Name: "segment.jitter.ms", Type: Long, Default: "0", Check: atLeast(0), Stored: true,
			Synonyms: []Synonym{
				{Name: "log.roll.jitter.ms"},
				{Name: "log.roll.jitter.hours", Factor: msPerHour, Type: Int, Default: "0"},
			},
			topic: func(t *Topic) any { return &t.SegmentJitterMs },
			Doc: "Kept and shown without effect: a new segment costs one file and one sync in " +
				"the background, so many at once do no harm.",
		},
		{
			Name: "segment.index.bytes", Type: Int, Default: "10485760", Check: atLeast(4),
			Synonyms: []Synonym{{Name: "log.index.size.max.bytes", Default: "10485760"}},
			topic:    func(t *Topic) any { return &t.SegmentIndexBytes },
			Doc:      "The largest offset index of a segment; one that is full closes the segment.",
		},
		{
			Name: "index.interval.bytes", Type: Int, Default: "4096", Check: atLeast(0),
			Synonyms: []Synonym{{Name: "log.index.interval.bytes", Default: "4096"}},
			topic:    func(t *Topic) any { return &t.IndexIntervalBytes },
			Doc: "About how many bytes of records there are between two entries of the offset " +
				"index.",
		},
		{
			Name: "preallocate", Type: Boolean, Default: "false", Stored: true,
			Synonyms: []Synonym{{Name: "log.preallocate", Default: "false"}},
			topic:    func(t *Topic) any { return &t.Preallocate },
			Doc: "Kept and shown without effect: acknowledgements wait for the commit journal, " +
				"whose files are always preallocated, and not for the segments.",
		},
	}
}

func recordOptions() []Option {
	return []Option{
		{
			Name: "max.message.bytes", Type: Int, Default: "1048588", Check: atLeast(0),
			Synonyms: []Synonym{{Name: "message.max.bytes", Default: "1048588"}},
			topic:    func(t *Topic) any { return &t.MaxMessageBytes },
			Doc: "The largest record batch that is accepted, as it is sent: compressed, if it " +
				"is. Consumers receive a first batch that is larger than their limits all the " +
				"same.",
		},
		{
			Name: "max.decompressed.message.bytes", Type: Int, Default: "268435456",
			Check:    between(1, 2147483639),
			Synonyms: []Synonym{{Name: "max.decompressed.message.bytes", Default: "268435456"}},
			topic:    func(t *Topic) any { return &t.MaxDecompressedMessageBytes },
			Doc: "What a compressed batch may decompress to. Kafka bounds one record, and by " +
				"default not below 2 GiB; here it bounds the batch, at 256 MiB, so that a small " +
				"request cannot cost seconds of work.",
		},
		{
			Name: "message.timestamp.type", Type: String, Default: "CreateTime",
			Check:    oneOf("CreateTime", "LogAppendTime"),
			Synonyms: []Synonym{{Name: "log.message.timestamp.type", Default: "CreateTime"}},
			topic:    func(t *Topic) any { return &t.MessageTimestampType },
			Doc:      "Whether a record keeps the producer's time or gets the broker's time of arrival.",
		},
		{
			Name: "message.timestamp.before.max.ms", Type: Long, Default: forEver,
			Check:    atLeast(0),
			Synonyms: []Synonym{{Name: "log.message.timestamp.before.max.ms", Default: forEver}},
			topic:    func(t *Topic) any { return &t.MessageTimestampBeforeMaxMs },
			Doc: "With CreateTime, how far a record's time may lie before the broker's; a record " +
				"beyond is refused.",
		},
		{
			Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000",
			Check:    atLeast(0),
			Synonyms: []Synonym{{Name: "log.message.timestamp.after.max.ms", Default: "3600000"}},
			topic:    func(t *Topic) any { return &t.MessageTimestampAfterMaxMs },
			Doc: "With CreateTime, how far a record's time may lie after the broker's; a record " +
				"beyond is refused. It catches clocks in the wrong unit, which would keep " +
				"segments for ever.",
		},
		{
			Name: "min.insync.replicas", Type: Int, Default: "1", Check: atLeast(1),
			Synonyms: []Synonym{{Name: "min.insync.replicas", Default: "1"}},
			topic:    func(t *Topic) any { return &t.MinInsyncReplicas },
			Doc: "How many replicas, the leader included, must be in sync for a produce with " +
				"acks=all to be accepted.",
		},
	}
}

func compactionOptions() []Option {
	return []Option{
		{
			Name: "delete.retention.ms", Type: Long, Default: oneDayMs, Check: atLeast(0),
			Synonyms: []Synonym{{Name: "log.cleaner.delete.retention.ms", Default: oneDayMs}},
			topic:    func(t *Topic) any { return &t.DeleteRetentionMs },
			Doc: "How long compaction keeps a tombstone (a record without a value), so that a " +
				"consumer that reads from the start within that time sees every deletion.",
		},
		{
			Name: "min.compaction.lag.ms", Type: Long, Default: "0", Check: atLeast(0),
			Synonyms: []Synonym{{Name: "log.cleaner.min.compaction.lag.ms", Default: "0"}},
			topic:    func(t *Topic) any { return &t.MinCompactionLagMs },
			Doc:      "How long a record is safe from compaction.",
		},
		{
			Name: "max.compaction.lag.ms", Type: Long, Default: forEver, Check: atLeast(1),
			Synonyms: []Synonym{{Name: "log.cleaner.max.compaction.lag.ms", Default: forEver}},
			topic:    func(t *Topic) any { return &t.MaxCompactionLagMs },
			Doc: "After how long a record is compacted though min.cleanable.dirty.ratio is not " +
				"reached.",
		},
		{
			Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Check: ratio(0, 1),
			Synonyms: []Synonym{{Name: "log.cleaner.min.cleanable.ratio", Default: "0.5"}},
			topic:    func(t *Topic) any { return &t.MinCleanableDirtyRatio },
			Doc: "What part of a partition must be uncompacted for the cleaner to take it up: " +
				"lower saves disk, higher saves work.",
		},
	}
}

func compressionOptions() []Option {
	level := func(codec, value string, c Check) Option {
		name := "compression." + codec + ".level"
		return Option{
			Name: name, Type: Int, Default: value, Check: c, Stored: true,
			Synonyms: []Synonym{{Name: name, Default: value}},
			Doc: "Kept and shown without effect: batches are stored as the producer compressed " +
				"them. Set the level where the producer is configured.",
		}
	}
	gzip := checked("1 to 9, or -1", func(v string) string {
		n, _ := strconv.Atoi(v)
		if n == -1 || n >= 1 && n <= 9 {
			return ""
		}
		return "want 1 to 9, or -1"
	})
	return []Option{
		{
			Name: "compression.type", Type: String, Default: "producer",
			Check: only("producer", "the broker stores batches as the producer compressed them: "+
				"set it there"),
			Synonyms: []Synonym{{Name: "compression.type", Default: "producer"}},
			Doc: "Batches are stored as the producer compressed them; Kafka's other values, " +
				"which have the broker compress again, are refused.",
		},
		level("gzip", "-1", gzip),
		level("lz4", "9", between(1, 17)),
		level("zstd", "3", between(-131072, 22)),
	}
}

func replicationOptions() []Option {
	throttled := func(whose string, field func(*Topic) any) Option {
		return Option{
			Name: whose + ".replication.throttled.replicas", Type: List,
			Check: throttledReplicas(), topic: field,
			Doc: "The replicas whose copying " + whose + ".replication.throttled.rate bounds on the " +
				whose + "'s side, as partition:broker, or * for all. Replicas in sync are never bound.",
		}
	}
	return []Option{
		throttled("follower", func(t *Topic) any { return &t.FollowerThrottledReplicas }),
		throttled("leader", func(t *Topic) any { return &t.LeaderThrottledReplicas }),
		{
			Name: "unclean.leader.election.enable", Type: Boolean, Default: "false",
			Synonyms: []Synonym{{Name: "unclean.leader.election.enable", Default: "false"}},
			topic:    func(t *Topic) any { return &t.UncleanLeaderElectionEnable },
			Doc: "Whether a replica that is not in sync may become the leader when no other is " +
				"left, though that loses acknowledged records. It matters for partitions of " +
				"several replicas.",
		},
		{
			Name: "errors.deadletterqueue.group.enable", Type: Boolean, Default: "false",
			Check: only("false", "share groups are not available"),
			Doc:   "Share groups are not available, so no topic can be their dead-letter queue.",
		},
	}
}

func idempotencyOptions() []Option {
	return []Option{
		{
			Name: "idempotency.window.ms", Type: Long, Default: "3600000", Check: atLeast(0),
			Synonyms: []Synonym{{Name: "idempotency.window.ms", Default: "3600000"}},
			topic:    func(t *Topic) any { return &t.IdempotencyWindowMs },
			Doc: "For how long, from a record's timestamp on, a retry over HTTP with the same " +
				"idempotency_key returns the first answer and appends nothing.",
		},
		{
			Name: "idempotency.max.keys", Type: Int, Default: "100000", Check: between(1, 10_000_000),
			Synonyms: []Synonym{{Name: "idempotency.max.keys", Default: "100000"}},
			topic:    func(t *Topic) any { return &t.IdempotencyMaxKeys },
			Doc: "How many idempotency keys a partition keeps in memory, about 180 bytes each; the " +
				"oldest go first, which may be before idempotency.window.ms is over. A metric " +
				"tells how old the oldest kept key is.",
		},
	}
}

func remoteOptions() []Option {
	const why = "segments are not moved to object storage by this version"
	off := func(name string) Option {
		return Option{
			Name: name, Type: Boolean, Default: "false", Check: only("false", why),
			Doc: "Only false is accepted: " + why + ".",
		}
	}
	kept := func(name, value string, low int64) Option {
		return Option{
			Name: name, Type: Long, Default: value, Check: atLeast(low), Stored: true,
			Synonyms: []Synonym{{Name: "log." + name, Default: value}},
			Doc:      "Kept and shown without effect: " + why + ".",
		}
	}
	return []Option{
		off("remote.storage.enable"),
		off("remote.log.copy.disable"),
		off("remote.log.delete.on.disable"),
		kept("local.retention.ms", "-2", -2),
		kept("local.retention.bytes", "-2", -2),
		kept("remote.copy.lag.ms", "0", -1),
		kept("remote.copy.lag.bytes", "-1", -1),
	}
}

// only takes one value and says why no other.
func only(value, why string) Check {
	return checked("only "+value, func(v string) string {
		if strings.EqualFold(v, value) {
			return ""
		}
		return "only " + value + " is supported: " + why
	})
}

// throttledReplicas takes * or partition:broker,partition:broker.
func throttledReplicas() Check {
	const want = "* or a list of partition:broker"
	return checked(want, func(v string) string {
		if v == "*" {
			return ""
		}
		for _, item := range SplitList(v) {
			partition, broker, ok := strings.Cut(item, ":")
			if !ok || !isNumber(partition) || !isNumber(broker) {
				return "want " + want
			}
		}
		return ""
	})
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}
