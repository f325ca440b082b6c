package config

// transactionOptions are the rows of what the transaction coordinator obeys.
func transactionOptions() []Option {
	return []Option{
		{
			Name: "transaction.max.timeout.ms", Type: Int, Default: "900000", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.TransactionMaxTimeout },
			Doc: "The longest that a producer may ask for its transactions to be left open. One that " +
				"is open for longer than its producer asked for is aborted.",
		},
		{
			Name: "transactional.id.expiration.ms", Type: Int, Default: "604800000", Check: atLeast(1),
			Update: ClusterWide,
			broker: func(b *Broker) any { return &b.TransactionalIDExpiration },
			Doc: "After how long without a transaction a transactional id is forgotten. Its producer " +
				"must start anew then.",
		},
		{
			Name: "transaction.state.log.num.partitions", Type: Int, Default: "50",
			Check:  between(1, 10_000),
			broker: func(b *Broker) any { return &b.TransactionStateNumPartitions },
			Doc: "The partitions of __transaction_state when it is created. It cannot change later: " +
				"transactional ids are found by hashing over them.",
		},
		{
			Name: "transaction.state.log.replication.factor", Type: Short, Default: "3",
			Check:  between(1, 32767),
			broker: func(b *Broker) any { return &b.TransactionStateReplicationLimit },
			Doc: "The replicas of __transaction_state when it is created, or as many as there are " +
				"brokers, where there are fewer.",
		},
		{
			Name: "transaction.state.log.min.isr", Type: Int, Default: "2", Check: between(1, 32767),
			broker: func(b *Broker) any { return &b.TransactionStateMinISR },
			Doc: "min.insync.replicas of __transaction_state when it is created; one less than its " +
				"replicas where those are no more than this, so that one of them may fail.",
		},
		{
			Name: "transaction.state.log.segment.bytes", Type: Int, Default: "104857600",
			Check:  atLeast(1 << 20),
			broker: func(b *Broker) any { return &b.TransactionStateSegmentBytes },
			Doc:    "segment.bytes of __transaction_state when it is created.",
		},
	}
}
