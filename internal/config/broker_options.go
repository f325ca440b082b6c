package config

// brokerOptions are the rows of the options of a broker that are no topic's.
func brokerOptions() []Option {
	rows := identityOptions()
	rows = append(rows, topicDefaultOptions()...)
	rows = append(rows, requestOptions()...)
	rows = append(rows, httpOptions()...)
	rows = append(rows, groupOptions()...)
	rows = append(rows, offsetsOptions()...)
	rows = append(rows, transactionOptions()...)
	rows = append(rows, clusterOptions()...)
	return append(rows, storageOptions()...)
}

func identityOptions() []Option {
	return []Option{
		{
			Name: "node.id", Type: Int, Default: "1", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.NodeID },
			Doc:    "The number of this broker, unlike that of any other in the cluster.",
		},
		{
			Name: "broker.rack", Type: String, NoDefault: true,
			broker: func(b *Broker) any { return &b.Rack },
			Doc:    "Where this broker stands (a rack, a zone), told to clients.",
		},
		{
			Name: "listeners", Type: List, Default: "PLAINTEXT://127.0.0.1:9092",
			Check:  listeners(false),
			broker: func(b *Broker) any { return &b.Listeners },
			Doc: "The addresses on which clients are served, as NAME://host:port; an empty host " +
				"listens on every interface, port 0 picks a free one.",
		},
		{
			Name: "advertised.listeners", Type: List, NoDefault: true, Check: listeners(true),
			broker: func(b *Broker) any { return &b.AdvertisedListeners },
			Doc: "The addresses that clients are told to use, as NAME://host:port, where they " +
				"differ from listeners: clients must be able to reach them by exactly this name.",
		},
		{
			Name: "log.dirs", Type: List, Default: "./strandline-data", Check: oneDirectory(),
			broker: func(b *Broker) any { return &b.LogDirs },
			Doc:    "The data directory. One, and by one broker at a time.",
		},
	}
}

func topicDefaultOptions() []Option {
	return []Option{
		{
			Name: "auto.create.topics.enable", Type: Boolean, Default: "true", Update: ClusterWide,
			broker: func(b *Broker) any { return &b.AutoCreateTopicsEnable },
			Doc: "Whether a topic is created when a client that allows it asks for one that is " +
				"not there, with num.partitions and default.replication.factor.",
		},
		{
			Name: "delete.topic.enable", Type: Boolean, Default: "true", Update: ClusterWide,
			broker: func(b *Broker) any { return &b.DeleteTopicEnable },
			Doc:    "Whether topics may be deleted.",
		},
		{
			Name: "num.partitions", Type: Int, Default: "1",
			Check: between(1, 10_000), Update: ClusterWide,
			broker: func(b *Broker) any { return &b.NumPartitions },
			Doc:    "The partitions of a topic whose creator does not say how many.",
		},
		{
			Name: "default.replication.factor", Type: Int, Default: "1", Check: between(1, 32767),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.DefaultReplicationFactor },
			Doc:    "The replicas of a topic whose creator does not say how many.",
		},
		{
			Name: "max.partitions.per.broker", Type: Int, Default: "100000", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.MaxPartitionsPerBroker },
			Doc: "How many partition replicas a broker may hold. Brokers that hold as many get no more, and " +
				"where too few have room a creation or a move is refused, with the numbers. Kafka has no such limit.",
		},
	}
}

func requestOptions() []Option {
	return []Option{
		{
			Name: "socket.request.max.bytes", Type: Int, Default: "104857600", Check: atLeast(1024),
			broker: func(b *Broker) any { return &b.SocketRequestMaxBytes },
			Doc:    "The largest request that is read; a larger one closes its connection.",
		},
		{
			Name: "queued.max.request.bytes", Type: Long, Default: "104857600",
			Check:  atLeast(1 << 20),
			broker: func(b *Broker) any { return &b.QueuedMaxRequestBytes },
			Doc: "What all requests that are being worked on may take together; connections wait " +
				"before they read more. The clients of one address may take half of it. A request " +
				"that would take more when it is decoded, or has more than one element for each KiB, " +
				"closes its connection. A broker of a cluster keeps a quarter of it for the other brokers. " +
				"Kafka's default sets no limit.",
		},
		{
			Name: "queued.max.response.bytes", Type: Long, Default: "67108864",
			Check:  atLeast(1 << 20),
			broker: func(b *Broker) any { return &b.QueuedMaxResponseBytes },
			Doc: "What all answers that were not sent yet may take together; requests wait before " +
				"they are worked on. The clients of one address may take half of it, and those that " +
				"do not take their answers are closed when others wait. A broker of a cluster keeps a quarter of it " +
				"for the other brokers. Kafka has no such limit.",
		},
		{
			Name: "socket.send.buffer.bytes", Type: Int, Default: "-1", Check: atLeast(-1),
			broker: func(b *Broker) any { return &b.SocketSendBufferBytes },
			Doc: "SO_SNDBUF of connections; -1 leaves it to the operating system, which grows it " +
				"as needed. Kafka's default is 102400.",
		},
		{
			Name: "socket.receive.buffer.bytes", Type: Int, Default: "-1", Check: atLeast(-1),
			broker: func(b *Broker) any { return &b.SocketReceiveBufferBytes },
			Doc: "SO_RCVBUF of connections; -1 leaves it to the operating system, which grows it " +
				"as needed. Kafka's default is 102400.",
		},
		{
			Name: "max.connections", Type: Int, Default: "10000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.MaxConnections },
			Doc:    "How many connections there may be at once. Kafka's default sets no limit.",
		},
		{
			Name: "max.connections.per.ip", Type: Int, Default: "2000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.MaxConnectionsPerIP },
			Doc: "How many connections there may be at once from one address. Kafka's default " +
				"sets no limit; raise it where many clients share an address behind a NAT or a " +
				"proxy.",
		},
		{
			Name: "connections.max.idle.ms", Type: Long, Default: "600000", Check: atLeast(-1),
			broker: func(b *Broker) any { return &b.ConnectionsMaxIdle },
			Doc:    "After how long a connection that asks for nothing is closed; -1 never closes it.",
		},
		{
			Name: "fetch.max.bytes", Type: Int, Default: "57671680",
			Check: atLeast(1024), Update: ClusterWide,
			broker: func(b *Broker) any { return &b.FetchMaxBytes },
			Doc: "The most that one fetch returns, whatever the client asks for; a first batch " +
				"may exceed it.",
		},
		{
			Name: "max.incremental.fetch.session.cache.slots", Type: Int, Default: "1000",
			Check:  atLeast(0),
			broker: func(b *Broker) any { return &b.MaxIncrementalFetchSessionCacheSlots },
			Doc:    "How many fetch sessions (KIP-227) are remembered.",
		},
		{
			Name: "max.request.partition.size.limit", Type: Int, Default: "2000", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.MaxRequestPartitionSizeLimit },
			Doc:    "How many partitions one answer to DescribeTopicPartitions has at most.",
		},
	}
}

func httpOptions() []Option {
	return []Option{
		{
			Name: "http.max.requests", Type: Int, Default: "4096", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.HTTPMaxRequests },
			Doc: "How many HTTP requests are answered at a time, those that wait for records " +
				"included; more get 429.",
		},
		{
			Name: "http.max.sessions", Type: Int, Default: "1000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.HTTPMaxSessions },
			Doc: "How many members of consumer groups read over HTTP at a time; more get 429 until " +
				"others were unused for their session timeout.",
		},
		{
			Name: "http.body.timeout.ms", Type: Int, Default: "30000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.HTTPBodyTimeout },
			Doc: "How long the body of an HTTP request may take to arrive, and a second more for " +
				"each 64 KiB of it; a slower one gets 408.",
		},
		{
			Name: "idempotency.max.keys.per.broker", Type: Int, Default: "1000000", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.IdempotencyMaxKeysPerBroker },
			Doc: "How many idempotency keys a broker keeps in memory in all, about 180 bytes each. " +
				"Beyond it the partition that has the most forgets its oldest, which may be before " +
				"idempotency.window.ms is over; a metric counts those.",
		},
	}
}

func groupOptions() []Option {
	return []Option{
		{
			Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "0", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.GroupInitialRebalanceDelay },
			Doc: "How long the first rebalance of an empty group waits for more members. Kafka " +
				"waits 3000; here a consumer that starts alone gets its partitions at once, and " +
				"one that joins later costs one more rebalance.",
		},
		{
			Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.GroupMinSessionTimeout },
			Doc:    "The shortest session timeout that a member may ask for.",
		},
		{
			Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.GroupMaxSessionTimeout },
			Doc:    "The longest session timeout that a member may ask for.",
		},
		{
			Name: "group.max.size", Type: Int, Default: "2147483647", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.GroupMaxSize },
			Doc:    "How many members a group may have.",
		},
	}
}

func offsetsOptions() []Option {
	return []Option{
		{
			Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.OffsetMetadataMaxBytes },
			Doc:    "The longest text that a client may attach to a committed offset.",
		},
		{
			Name: "offsets.commit.timeout.ms", Type: Int, Default: "5000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.OffsetsCommitTimeout },
			Doc:    "How long a commit waits for the in-sync replicas before it fails.",
		},
		{
			Name: "offsets.retention.minutes", Type: Int, Default: "10080", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.OffsetsRetention },
			Doc: "How long the offsets of a group are kept after its last member left, or, for a " +
				"consumer without a group membership, after its last commit.",
		},
		{
			Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000",
			Check:  atLeast(1),
			broker: func(b *Broker) any { return &b.OffsetsRetentionCheck },
			Doc:    "How often expired offsets are looked for.",
		},
		{
			Name: "offsets.topic.num.partitions", Type: Int, Default: "50",
			Check:  between(1, 10_000),
			broker: func(b *Broker) any { return &b.OffsetsTopicNumPartitions },
			Doc: "The partitions of __consumer_offsets when it is created. It cannot change " +
				"later: groups are found by hashing over them.",
		},
		{
			Name: "offsets.topic.replication.factor", Type: Short, Default: "3",
			Check:  between(1, 32767),
			broker: func(b *Broker) any { return &b.OffsetsTopicReplicationLimit },
			Doc: "The replicas of __consumer_offsets when it is created, or as many as there are " +
				"brokers, where there are fewer. It is not created before as many brokers have " +
				"registered as there are voters.",
		},
		{
			Name: "offsets.topic.segment.bytes", Type: Int, Default: "104857600",
			Check:  atLeast(1 << 20),
			broker: func(b *Broker) any { return &b.OffsetsTopicSegmentBytes },
			Doc:    "segment.bytes of __consumer_offsets when it is created.",
		},
	}
}

func storageOptions() []Option {
	return []Option{
		{
			Name: "producer.id.expiration.ms", Type: Int, Default: oneDayMs, Check: atLeast(1),
			broker: func(b *Broker) any { return &b.ProducerIDExpiration },
			Doc: "After how long without a record a partition forgets an idempotent producer's " +
				"last sequences.",
		},
		{
			Name: "log.retention.check.interval.ms", Type: Long, Default: "300000",
			Check:  atLeast(1),
			broker: func(b *Broker) any { return &b.LogRetentionCheckInterval },
			Doc:    "How often segments past their retention are looked for.",
		},
		{
			Name: "log.flush.offset.checkpoint.interval.ms", Type: Int, Default: "5000",
			Check:  atLeast(1),
			broker: func(b *Broker) any { return &b.LogCheckpointInterval },
			Doc: "How often the durable recovery points are written down. After a crash, what is " +
				"newer is read back.",
		},
		{
			Name: "num.recovery.threads.per.data.dir", Type: Int, Default: "2", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.RecoveryThreads },
			Doc:    "How many logs are recovered at once at start.",
		},
		{
			Name: "log.cleaner.enable", Type: Boolean, Default: "true",
			broker: func(b *Broker) any { return &b.CleanerEnable },
			Doc: "Whether compacted topics are compacted; without it __consumer_offsets grows " +
				"without bound.",
		},
		{
			Name: "log.cleaner.threads", Type: Int, Default: "1", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.CleanerThreads },
			Doc:    "How many logs are compacted at once.",
		},
		{
			Name: "log.cleaner.backoff.ms", Type: Long, Default: "15000", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.CleanerBackoff },
			Doc:    "How long the cleaner rests when there is nothing to compact.",
		},
		{
			Name: "log.cleaner.dedupe.buffer.size", Type: Long, Default: "134217728",
			Check:  atLeast(1 << 20),
			broker: func(b *Broker) any { return &b.CleanerDedupeBufferSize },
			Doc:    "The most memory that compaction takes for the keys of one round.",
		},
		{
			Name: "metrics.partition.series.max", Type: Int, Default: "20000", Check: atLeast(0),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.MetricsPartitionSeriesMax },
			Doc: "Up to how many partitions on a broker, and offsets of groups, /metrics shows one " +
				"by one; beyond, only sums by topic. Kafka has no such option.",
		},
		{
			Name: "metrics.group.series.max", Type: Int, Default: "10000", Check: atLeast(0),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.MetricsGroupSeriesMax },
			Doc: "Up to how many groups, and topics of groups, /metrics shows one by one: those that " +
				"have members first, then by name. How many groups are left out is a metric of its " +
				"own. Kafka has no such option.",
		},
		{
			Name: "replica.lag.time.max.ms", Type: Long, Default: "30000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.ReplicaLagTimeMax },
			Doc: "After how long a follower that has not caught up leaves the in-sync replicas. One " +
				"that has lost all connections to the leader, and so cannot catch up, leaves them " +
				"within about three seconds.",
		},
		{
			Name: "metadata.log.max.record.bytes.between.snapshots", Type: Long, Default: "20971520",
			Check:  atLeast(1),
			broker: func(b *Broker) any { return &b.MetadataSnapshotAfterBytes },
			Doc:    "After how many bytes of metadata records a snapshot takes their place.",
		},
	}
}
