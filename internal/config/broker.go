package config

import "time"

// Broker is how a broker is to work. Durations that nothing bounds are capped at
// what a Duration holds. A Broker is not changed after it was made: a change of
// configuration makes another.
type Broker struct {
	// Topic holds the defaults of topics' options.
	Topic Topic

	// Identity and addresses.
	NodeID              int32      // node.id.
	Rack                string     // broker.rack; "" for none.
	Listeners           []Listener // listeners.
	AdvertisedListeners []Listener // advertised.listeners; those of Listeners where empty.
	LogDirs             []string   // log.dirs; exactly one.

	// Topics.
	AutoCreateTopicsEnable   bool  // auto.create.topics.enable.
	DeleteTopicEnable        bool  // delete.topic.enable.
	NumPartitions            int32 // num.partitions.
	DefaultReplicationFactor int16 // default.replication.factor.

	// Connections and requests.
	SocketRequestMaxBytes                int32         // socket.request.max.bytes.
	SocketSendBufferBytes                int32         // socket.send.buffer.bytes.
	SocketReceiveBufferBytes             int32         // socket.receive.buffer.bytes.
	QueuedMaxRequestBytes                int64         // queued.max.request.bytes.
	QueuedMaxResponseBytes               int64         // queued.max.response.bytes.
	MaxConnections                       int32         // max.connections.
	MaxConnectionsPerIP                  int32         // max.connections.per.ip.
	ConnectionsMaxIdle                   time.Duration // connections.max.idle.ms.
	FetchMaxBytes                        int32         // fetch.max.bytes.
	MaxIncrementalFetchSessionCacheSlots int32         // max.incremental.fetch.session.cache.slots.
	MaxRequestPartitionSizeLimit         int32         // max.request.partition.size.limit.
	HTTPMaxRequests                      int32         // http.max.requests.
	HTTPMaxSessions                      int32         // http.max.sessions.
	HTTPBodyTimeout                      time.Duration // http.body.timeout.ms.
	IdempotencyMaxKeysPerBroker          int32         // idempotency.max.keys.per.broker.

	// Groups and their offsets.
	GroupInitialRebalanceDelay   time.Duration // group.initial.rebalance.delay.ms.
	GroupMinSessionTimeout       time.Duration // group.min.session.timeout.ms.
	GroupMaxSessionTimeout       time.Duration // group.max.session.timeout.ms.
	GroupMaxSize                 int32         // group.max.size.
	OffsetMetadataMaxBytes       int32         // offset.metadata.max.bytes.
	OffsetsCommitTimeout         time.Duration // offsets.commit.timeout.ms.
	OffsetsRetention             time.Duration // offsets.retention.minutes.
	OffsetsRetentionCheck        time.Duration // offsets.retention.check.interval.ms.
	OffsetsTopicNumPartitions    int32         // offsets.topic.num.partitions.
	OffsetsTopicReplicationLimit int16         // offsets.topic.replication.factor.
	OffsetsTopicSegmentBytes     int32         // offsets.topic.segment.bytes.

	// Transactions.
	TransactionMaxTimeout            time.Duration // transaction.max.timeout.ms.
	TransactionalIDExpiration        time.Duration // transactional.id.expiration.ms.
	TransactionStateNumPartitions    int32         // transaction.state.log.num.partitions.
	TransactionStateReplicationLimit int16         // transaction.state.log.replication.factor.
	TransactionStateMinISR           int16         // transaction.state.log.min.isr.
	TransactionStateSegmentBytes     int32         // transaction.state.log.segment.bytes.

	// Storage.
	ProducerIDExpiration      time.Duration // producer.id.expiration.ms.
	LogRetentionCheckInterval time.Duration // log.retention.check.interval.ms.
	LogCheckpointInterval     time.Duration // log.flush.offset.checkpoint.interval.ms.
	RecoveryThreads           int32         // num.recovery.threads.per.data.dir.
	CleanerEnable             bool          // log.cleaner.enable.
	CleanerThreads            int32         // log.cleaner.threads.
	CleanerBackoff            time.Duration // log.cleaner.backoff.ms.
	CleanerDedupeBufferSize   int64         // log.cleaner.dedupe.buffer.size.

	// Observation.
	MetricsPartitionSeriesMax int32 // metrics.partition.series.max.
	MetricsGroupSeriesMax     int32 // metrics.group.series.max.

	// Several brokers.
	HeartbeatInterval            time.Duration // broker.heartbeat.interval.ms.
	SessionTimeout               time.Duration // broker.session.timeout.ms.
	AutoLeaderRebalanceEnable    bool          // auto.leader.rebalance.enable.
	LeaderImbalanceCheckInterval time.Duration // leader.imbalance.check.interval.seconds.
	NumReplicaFetchers           int32         // num.replica.fetchers.
	ReplicaFetchWaitMax          time.Duration // replica.fetch.wait.max.ms.
	ReplicaFetchMinBytes         int32         // replica.fetch.min.bytes.
	ReplicaFetchMaxBytes         int32         // replica.fetch.max.bytes.
	ReplicaFetchResponseMaxBytes int32         // replica.fetch.response.max.bytes.
	ReplicaFetchBackoff          time.Duration // replica.fetch.backoff.ms.
	ReplicaSocketTimeout         time.Duration // replica.socket.timeout.ms.
	LeaderThrottledRate          int64         // leader.replication.throttled.rate.
	FollowerThrottledRate        int64         // follower.replication.throttled.rate.

	// Replication and metadata.
	ReplicaLagTimeMax          time.Duration // replica.lag.time.max.ms.
	MetadataSnapshotAfterBytes int64         // metadata.log.max.record.bytes.between.snapshots.
	MaxPartitionsPerBroker     int32         // max.partitions.per.broker.
}
