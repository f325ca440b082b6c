package config

// clusterOptions are the rows of what matters with several brokers only.
func clusterOptions() []Option {
	return append(append(livenessOptions(), fetcherOptions()...), throttleOptions()...)
}

// CordonedLogDirs is the option that keeps new replicas from a broker.
const CordonedLogDirs = "cordoned.log.dirs"

// Cordoned reports whether a broker's own values, set while it runs, keep new replicas
// from it.
func Cordoned(brokerDynamic map[string]string) bool {
	return len(SplitList(brokerDynamic[CordonedLogDirs])) > 0
}

func throttleOptions() []Option {
	const noBound = "9223372036854775807"
	return []Option{
		{
			Name: "leader.replication.throttled.rate", Type: Long, Default: noBound, Check: atLeast(1),
			Update: ClusterWide, broker: func(b *Broker) any { return &b.LeaderThrottledRate },
			Doc: "How many bytes a second a broker sends to followers that are not in sync, of the " +
				"partitions in leader.replication.throttled.replicas. kafka-reassign-partitions.sh " +
				"--throttle sets it.",
		},
		{
			Name: "follower.replication.throttled.rate", Type: Long, Default: noBound, Check: atLeast(1),
			Update: ClusterWide, broker: func(b *Broker) any { return &b.FollowerThrottledRate },
			Doc: "How many bytes a second a broker copies of the partitions in " +
				"follower.replication.throttled.replicas in which it is not in sync.",
		},
		{
			// kafka-reassign-partitions.sh --verify takes all three throttles away in one
			// request, which fails if one of them is not known.
			Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Default: noBound, Check: atLeast(0),
			Update: ClusterWide, Stored: true,
			Doc: "Kept and shown without effect: a broker has one directory, so replicas are not moved from " +
				"one to another.",
		},
	}
}

func livenessOptions() []Option {
	return []Option{
		{
			Name: CordonedLogDirs, Type: List, Check: anyOf("*"), Update: PerBroker,
			Doc: "*, so that no replicas are placed on this broker, but those of new partitions for which too " +
				"few other brokers are left (KIP-1066); empty for none. strandline cluster drain sets it. It is " +
				"a fact of the cluster's metadata, and can't be set where a broker is started.",
		},
		{
			Name: "broker.heartbeat.interval.ms", Type: Int, Default: "250", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.HeartbeatInterval },
			Doc: "How often a broker tells the active controller that it runs. Kafka's default is " +
				"2000.",
		},
		{
			Name: "broker.session.timeout.ms", Type: Int, Default: "1500", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.SessionTimeout },
			Doc: "After how long without a heartbeat the active controller holds a broker for " +
				"failed, and has others lead what it led. A process that has ended is noticed " +
				"much sooner, by its connections. Kafka's default is 9000.",
		},
		{
			Name: "auto.leader.rebalance.enable", Type: Boolean, Default: "true",
			broker: func(b *Broker) any { return &b.AutoLeaderRebalanceEnable },
			Doc: "Whether partitions go back to their preferred leaders, the first of their " +
				"replicas, when those are in sync again.",
		},
		{
			Name: "leader.imbalance.check.interval.seconds", Type: Long, Default: "10",
			Check:  atLeast(1),
			broker: func(b *Broker) any { return &b.LeaderImbalanceCheckInterval },
			Doc: "How often partitions go back to their preferred leaders, some at a time. It is " +
				"also how often partitions without a leader are looked for that could have one. " +
				"Kafka's default is 300, and it moves all of them at once.",
		},
	}
}

func fetcherOptions() []Option {
	return []Option{
		{
			Name: "num.replica.fetchers", Type: Int, Default: "1", Check: between(1, 64),
			broker: func(b *Broker) any { return &b.NumReplicaFetchers },
			Doc:    "How many connections a broker copies from each other broker with.",
		},
		{
			Name: "replica.fetch.wait.max.ms", Type: Int, Default: "500", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.ReplicaFetchWaitMax },
			Doc: "How long a leader may hold back the answer to a follower when there is nothing " +
				"to copy. It must be less than replica.lag.time.max.ms.",
		},
		{
			Name: "replica.fetch.min.bytes", Type: Int, Default: "1", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.ReplicaFetchMinBytes },
			Doc:    "How many bytes a follower wants at least, before replica.fetch.wait.max.ms is over.",
		},
		{
			Name: "replica.fetch.max.bytes", Type: Int, Default: "1048576", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.ReplicaFetchMaxBytes },
			Doc: "How many bytes of one partition a follower copies at a time; a first batch may " +
				"exceed it.",
		},
		{
			Name: "replica.fetch.response.max.bytes", Type: Int, Default: "10485760",
			Check:  atLeast(0),
			broker: func(b *Broker) any { return &b.ReplicaFetchResponseMaxBytes },
			Doc: "How many bytes of all partitions together a follower copies at a time; a first " +
				"batch may exceed it.",
		},
		{
			Name: "replica.socket.timeout.ms", Type: Int, Default: "30000", Check: atLeast(1),
			broker: func(b *Broker) any { return &b.ReplicaSocketTimeout },
			Doc:    "After how long without an answer a follower gives up a fetch and connects anew.",
		},
		{
			Name: "replica.fetch.backoff.ms", Type: Int, Default: "100", Check: atLeast(0),
			broker: func(b *Broker) any { return &b.ReplicaFetchBackoff },
			Doc: "How long a follower rests after a fetch of a partition has failed. Kafka's " +
				"default is 1000.",
		},
	}
}
