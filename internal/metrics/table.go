package metrics

import "iter"

// Metric is a row of the table: a metric that /metrics may show.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram.
	Labels []string
	Help   string
	// Kafka is the metric of Apache Kafka that tells the same, "" if there is
	// none.
	Kafka string
}

// All returns the table, section by section.
func All() iter.Seq2[string, []Metric] {
	return func(yield func(string, []Metric) bool) {
		for _, s := range sections() {
			if !yield(s.title, s.metrics) {
				return
			}
		}
	}
}

type section struct {
	title   string
	metrics []Metric
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

func labels(names ...string) []string { return names }

func sections() []section {
	return []section{
		{"The broker and the cluster", clusterMetrics()},
		{"Topics", topicMetrics()},
		{"Partitions", partitionMetrics()},
		{"Groups", groupMetrics()},
		{"Transactions", transactionMetrics()},
		{"Requests of Kafka clients", requestMetrics()},
		{"Connections and memory", connectionMetrics()},
		{"HTTP", httpMetrics()},
		{"Consumers over HTTP", sessionMetrics()},
		{"Journal and disk", storageMetrics()},
	}
}

func clusterMetrics() []Metric {
	return []Metric{
		{
			"strandline_build_info", gauge, labels("version", "revision", "go_version"),
			"Always 1; its labels say what runs here.", "",
		},
		{
			"strandline_broker_info", gauge, labels("cluster_id", "node_id", "rack"),
			"Always 1; its labels say which broker this is.", "",
		},
		{
			"strandline_broker_ready", gauge, nil,
			"1 if the broker serves clients.", "",
		},
		{
			"strandline_controller_active", gauge, nil,
			"1 on the broker that is the active controller, else 0.",
			"kafka.controller:type=KafkaController,name=ActiveControllerCount",
		},
		{
			"strandline_quorum_leader", gauge, nil,
			"Node id of the controller quorum's leader, -1 while none is known.",
			"kafka.server:type=raft-metrics (current-leader)",
		},
		{
			"strandline_quorum_term", gauge, nil,
			"Term of the controller quorum: it rises with every election.",
			"kafka.server:type=raft-metrics (current-epoch)",
		},
		{
			"strandline_quorum_committed_index", gauge, nil,
			"Last entry of the metadata log that is committed.",
			"kafka.server:type=raft-metrics (high-watermark)",
		},
		{
			"strandline_quorum_applied_index", gauge, nil,
			"Last entry of the metadata log that is applied on this broker.",
			"kafka.server:type=broker-metadata-metrics (last-applied-record-offset)",
		},
		{
			"strandline_cluster_brokers", gauge, nil,
			"Registered brokers that are not fenced.",
			"kafka.controller:type=KafkaController,name=ActiveBrokerCount",
		},
		{
			"strandline_cluster_brokers_fenced", gauge, nil,
			"Registered brokers that are fenced: they may not lead.",
			"kafka.controller:type=KafkaController,name=FencedBrokerCount",
		},
		{
			"strandline_cluster_topics", gauge, nil,
			"Topics of the cluster.",
			"kafka.controller:type=KafkaController,name=GlobalTopicCount",
		},
		{
			"strandline_cluster_partitions", gauge, nil,
			"Partitions of the cluster.",
			"kafka.controller:type=KafkaController,name=GlobalPartitionCount",
		},
		{
			"strandline_cluster_partitions_leaderless", gauge, nil,
			"Partitions of the cluster that have no leader: nobody can write to or read from them.",
			"kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
		},
		{
			"strandline_isr_changes_total", counter, labels("change"),
			"Changes of in-sync replicas (change is shrink or expand) of partitions that this broker leads.",
			"kafka.server:type=ReplicaManager,name=IsrShrinksPerSec and IsrExpandsPerSec",
		},
		{
			"strandline_leader_elections_total", counter, labels("kind"),
			"Elections that made this broker the leader of a partition: clean, or unclean, of a replica that was " +
				"not in sync and may lack what was acknowledged.",
			"kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs and UncleanLeaderElectionsPerSec",
		},
		{
			"strandline_replication_received_bytes_total", counter, nil,
			"Bytes of record batches that this broker has copied from leaders.",
			"kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
		},
		{
			"strandline_replication_sent_bytes_total", counter, nil,
			"Bytes of record batches that followers were sent.",
			"kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
		},
		{
			"strandline_replication_max_lag_records", gauge, nil,
			"Largest number of offsets between a log here and its leader's high watermark, when that was heard of last.",
			"kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
		},
	}
}

func topicMetrics() []Metric {
	return []Metric{
		{
			"strandline_topic_received_bytes_total", counter, labels("topic"),
			"Bytes of record batches that were appended, as stored.",
			"kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
		},
		{
			"strandline_topic_received_records_total", counter, labels("topic"),
			"Records that were appended.",
			"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
		},
		{
			"strandline_topic_sent_bytes_total", counter, labels("topic"),
			"Bytes of record batches that readers were sent, as stored.",
			"kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
		},
		{
			"strandline_topic_sent_records_total", counter, labels("topic"),
			"Records that readers were sent, counted by offsets: of a compacted topic an upper bound.", "",
		},
		{
			"strandline_topic_partitions", gauge, labels("topic"),
			"Partition replicas of the topic on this broker.", "",
		},
		{
			"strandline_topic_size_bytes", gauge, labels("topic"),
			"Bytes of the topic's segments on this broker.",
			"kafka.log:type=Log,name=Size",
		},
	}
}

func partitionMetrics() []Metric {
	of := labels("topic", "partition")
	return []Metric{
		{
			"strandline_partitions", gauge, nil,
			"Partition replicas on this broker.",
			"kafka.server:type=ReplicaManager,name=PartitionCount",
		},
		{
			"strandline_partitions_led", gauge, nil,
			"Partitions that this broker leads.",
			"kafka.server:type=ReplicaManager,name=LeaderCount",
		},
		{
			"strandline_partitions_under_replicated", gauge, nil,
			"Partitions led here with fewer replicas in sync than they have.",
			"kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
		},
		{
			"strandline_partitions_under_min_in_sync", gauge, nil,
			"Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
			"kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
		},
		{
			"strandline_partitions_offline", gauge, nil,
			"Partition replicas here whose log failed: their disk is no good.",
			"kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
		},
		{
			"strandline_partitions_corrupt", gauge, nil,
			"Partition replicas here with damage in what was durable: they take no appends.", "",
		},
		{
			"strandline_partition_log_start_offset", gauge, of,
			"First offset that can be read.",
			"kafka.log:type=Log,name=LogStartOffset",
		},
		{
			"strandline_partition_log_end_offset", gauge, of,
			"Offset of the next record.",
			"kafka.log:type=Log,name=LogEndOffset",
		},
		{
			"strandline_partition_high_watermark", gauge, of,
			"First offset that consumers may not read yet.",
			"kafka.cluster:type=Partition,name=HighWatermark",
		},
		{
			"strandline_partition_size_bytes", gauge, of,
			"Bytes of the partition's segments.",
			"kafka.log:type=Log,name=Size",
		},
		{
			"strandline_partition_leader_epoch", gauge, of,
			"Leader epoch: it rises with every change of the leader.", "",
		},
	}
}

func groupMetrics() []Metric {
	of := labels("group", "topic", "partition")
	return []Metric{
		{
			"strandline_groups", gauge, labels("state"),
			"Consumer groups that this broker coordinates, by Kafka's name of their state.",
			"kafka.server:type=group-coordinator-metrics,name=group-count",
		},
		{
			"strandline_groups_unlisted", gauge, nil,
			"Groups without series of their own, because there are more than metrics.group.series.max; " +
				"those that have members go first, and then names.", "",
		},
		{
			"strandline_group_members", gauge, labels("group"),
			"Members of the group.", "",
		},
		{
			"strandline_group_generation", gauge, labels("group"),
			"Generation of the group: it rises with every rebalance.", "",
		},
		{
			"strandline_group_lag_records", gauge, of,
			"Offsets between what the group has committed and the high watermark, of partitions that the " +
				"group's coordinator leads too.",
			"records-lag-max of consumers",
		},
		{
			"strandline_group_lag_seconds", gauge, of,
			"Age of the first record that the group has not committed, by its batch's first timestamp; 0 " +
				"without a lag, absent if unknown.", "",
		},
		{
			"strandline_group_topic_lag_records", gauge, labels("group", "topic"),
			"Sum of strandline_group_lag_records over the partitions.", "",
		},
		{
			"strandline_group_topic_lag_seconds", gauge, labels("group", "topic"),
			"Largest strandline_group_lag_seconds of the partitions.", "",
		},
	}
}

func requestMetrics() []Metric {
	return []Metric{
		{
			"strandline_requests_total", counter, labels("api"),
			"Requests that a handler began to answer, by Kafka's name of the request.",
			"kafka.network:type=RequestMetrics,name=RequestsPerSec",
		},
		{
			"strandline_request_errors_total", counter, labels("api", "code"),
			"Error codes in answers; one answer may hold one for each partition.",
			"kafka.network:type=RequestMetrics,name=ErrorsPerSec",
		},
		{
			"strandline_request_duration_seconds", histogram, labels("api"),
			"Time from a request's last byte to its encoded answer, what it waits for included: the sync for " +
				"Produce, new records for Fetch.",
			"kafka.network:type=RequestMetrics,name=TotalTimeMs",
		},
		{
			"strandline_request_queue_seconds", histogram, labels("api"),
			"Part of that time before the handler began.",
			"kafka.network:type=RequestMetrics,name=RequestQueueTimeMs",
		},
		{
			"strandline_requests_in_flight", gauge, nil,
			"Requests that a handler has begun and that are not answered: waiting for the disk, for replicas " +
				"or for new records.", "",
		},
	}
}

func connectionMetrics() []Metric {
	return []Metric{
		{
			"strandline_connections", gauge, nil,
			"Open connections of Kafka clients.",
			"kafka.server:type=socket-server-metrics (connection-count)",
		},
		{
			"strandline_connections_limit", gauge, nil,
			"Most connections that may be open (max.connections, or what the limit of open files leaves).", "",
		},
		{
			"strandline_connections_accepted_total", counter, nil,
			"Connections that were accepted.",
			"kafka.server:type=socket-server-metrics (connection-creation-total)",
		},
		{
			"strandline_connections_refused_total", counter, nil,
			"Connections that were closed unread because a limit was reached.", "",
		},
		{
			"strandline_connections_closed_total", counter, labels("reason"),
			"Connections that ended, by reason.",
			"kafka.server:type=socket-server-metrics (connection-close-total)",
		},
		{
			"strandline_request_memory_bytes", gauge, nil,
			"Memory of requests that are being read or not yet released.", "",
		},
		{
			"strandline_request_memory_limit_bytes", gauge, nil,
			"Most of that memory (queued.max.request.bytes): beyond it nothing more is read.", "",
		},
		{
			"strandline_request_memory_waiting_connections", gauge, nil,
			"Connections that wait for some of that memory.", "",
		},
		{
			"strandline_network_received_bytes_total", counter, nil,
			"Bytes read from Kafka clients.",
			"kafka.server:type=socket-server-metrics (incoming-byte-total)",
		},
		{
			"strandline_network_sent_bytes_total", counter, nil,
			"Bytes written to Kafka clients.",
			"kafka.server:type=socket-server-metrics (outgoing-byte-total)",
		},
	}
}

func httpMetrics() []Metric {
	return []Metric{
		{
			"strandline_http_requests_total", counter, labels("route", "status"),
			"HTTP requests, by route and status; a request that no route takes has the route none.", "",
		},
		{
			"strandline_http_request_duration_seconds", histogram, labels("route"),
			"Time of HTTP requests, long polls and streams included.", "",
		},
		{
			"strandline_idempotency_kept_keys", gauge, labels("topic"),
			"Idempotency keys of produce requests that are remembered; absent while there are none.", "",
		},
		{
			"strandline_idempotency_oldest_key_age_seconds", gauge, labels("topic"),
			"Age of the oldest of them: a retry of what is older may append again. It falls short of " +
				"idempotency.window.ms where more keys came than are kept.", "",
		},
		{
			"strandline_idempotency_keys", gauge, nil,
			"Idempotency keys of all topics that are remembered.", "",
		},
		{
			"strandline_idempotency_keys_limit", gauge, nil,
			"Most of them (idempotency.max.keys.per.broker).", "",
		},
		{
			"strandline_idempotency_evicted_keys_total", counter, labels("limit"),
			"Keys forgotten before idempotency.window.ms was over: their partition had too many (limit is " +
				"partition), or the broker had, and their partition the most (broker).", "",
		},
		{
			"strandline_http_connections", gauge, nil,
			"Open connections to the HTTP listener.", "",
		},
		{
			"strandline_http_connections_accepted_total", counter, nil,
			"Connections to the HTTP listener that were accepted.", "",
		},
		{
			"strandline_http_connections_refused_total", counter, labels("limit"),
			"Connections to the HTTP listener that were turned away: there were max.connections, or " +
				"max.connections.per.ip from the address.", "",
		},
		{
			"strandline_http_passed_on_requests_total", counter, labels("outcome"),
			"Requests of other brokers, for clients or for groups, keys and transactions between them: answered, unsent " +
				"(no connection, so they are tried elsewhere) or lost (sent, and not answered).", "",
		},
	}
}

func sessionMetrics() []Metric {
	return []Metric{
		{
			"strandline_http_sessions", gauge, nil,
			"Members of consumer groups that read over HTTP.", "",
		},
		{
			"strandline_http_sessions_limit", gauge, nil,
			"Most of them (http.max.sessions).", "",
		},
		{
			"strandline_http_sessions_begun_total", counter, nil,
			"Sessions that were begun.", "",
		},
		{
			"strandline_http_sessions_refused_total", counter, nil,
			"Sessions that were not begun, because there were as many as may be.", "",
		},
		{
			"strandline_http_session_joins_total", counter, labels("kind"),
			"Generations of groups that sessions became part of: their first, and later ones (rejoin): the group " +
				"rebalanced, or the session was lost and came back.", "",
		},
		{
			"strandline_http_sessions_ended_total", counter, labels("reason"),
			"Sessions that ended: expired (unused for their session timeout), fenced (somebody goes on under " +
				"the name, on another broker perhaps), failed (the group refused them; the caller was told why).", "",
		},
	}
}

func storageMetrics() []Metric {
	return []Metric{
		{
			"strandline_journal_rounds_total", counter, nil,
			"Rounds that made appends durable; each serves all appends of its time.",
			"kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
		},
		{
			"strandline_journal_round_size_bytes", histogram, nil,
			"Bytes of record batches that a round made durable.", "",
		},
		{
			"strandline_journal_sync_duration_seconds", histogram, nil,
			"Time that a round took to make its appends durable: a slow disk shows here first.",
			"kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
		},
		{
			"strandline_journal_writes_total", counter, nil,
			"Rounds that went through the journal's files; the others synced the segments themselves.", "",
		},
		{
			"strandline_journal_written_bytes_total", counter, nil,
			"Bytes written to the journal's files, padding included.", "",
		},
		{
			"strandline_journal_file_syncs_total", counter, labels("reason"),
			"Logs whose own files were synced: by a round, or to use a file of the journal again (recycle).", "",
		},
		{
			"strandline_journal_files", gauge, nil,
			"Files of the journal on disk.", "",
		},
		{
			"strandline_disk_free_bytes", gauge, nil,
			"Free bytes of the data directory's file system.", "",
		},
		{
			"strandline_disk_size_bytes", gauge, nil,
			"Bytes of the data directory's file system.", "",
		},
		{
			"strandline_storage_logs_recovered_total", counter, nil,
			"Logs in which something newer than the checkpoint was found at the start.", "",
		},
		{
			"strandline_storage_torn_bytes_total", counter, nil,
			"Bytes that recovery cut off: torn tails, which were never acknowledged, and what the journal brought back.", "",
		},
		{
			"strandline_storage_segments_deleted_total", counter, nil,
			"Segments deleted by retention or by request.", "",
		},
		{
			"strandline_storage_corruptions_total", counter, nil,
			"Reports of stored bytes that are not what was written.", "",
		},
		{
			"strandline_storage_mended_total", counter, nil,
			"Damaged places in stored records that were filled from another replica.", "",
		},
		{
			"strandline_storage_failures_total", counter, nil,
			"Logs that went offline because their disk failed.",
			"kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
		},
		{
			"strandline_storage_read_failures_total", counter, nil,
			"Reports of reads that the disk failed, at most one a minute for each log.", "",
		},
		{
			"strandline_storage_disk_full_total", counter, nil,
			"Reports of appends refused for want of space, at most one a minute.", "",
		},
		{
			"strandline_storage_alarms_total", counter, nil,
			"Storage problems that a person should look at; the log tells them.", "",
		},
		{
			"strandline_storage_problems_total", counter, nil,
			"Storage problems that heal themselves or can wait; the log tells them.", "",
		},
		{
			"strandline_cleaner_passes_total", counter, labels("outcome"),
			"Compactions of one log: done, failed (to be tried again) or refused (uncleanable).",
			"kafka.log:type=LogCleaner",
		},
		{
			"strandline_cleaner_reclaimed_bytes_total", counter, nil,
			"Bytes that compaction made free.", "",
		},
		{
			"strandline_process_disk_read_bytes_total", counter, nil,
			"Bytes that this process had the disk read: reads that miss the page cache. Absent where the " +
				"system does not tell.", "",
		},
		{
			"strandline_process_disk_written_bytes_total", counter, nil,
			"Bytes that this process had the disk write. Absent where the system does not tell.", "",
		},
		{
			"strandline_process_major_page_faults_total", counter, nil,
			"Page faults that waited for the disk.", "",
		},
	}
}
