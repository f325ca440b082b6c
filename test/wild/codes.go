package wild

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// expected returns the errors that the clients of Kafka know as answers to a request: any
// other ends a producer.
func expected(what string) []error {
	coordinator := []error{
		kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
		kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping,
	}
	state := []error{kerr.InvalidTxnState, kerr.TransactionAbortable}
	switch what {
	case "InitProducerId":
		return append(coordinator, kerr.ConcurrentTransactions)
	case "AddPartitionsToTxn":
		return slices.Concat(coordinator, state, []error{
			kerr.ConcurrentTransactions, kerr.UnknownTopicOrPartition, kerr.OperationNotAttempted,
		})
	case "AddOffsetsToTxn", "EndTxn":
		return slices.Concat(coordinator, state, []error{kerr.ConcurrentTransactions})
	case "TxnOffsetCommit":
		return slices.Concat(coordinator, state, []error{kerr.UnknownTopicOrPartition})
	}
	return append(state, // Of Produce.
		kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
		kerr.KafkaStorageError, kerr.UnknownTopicOrPartition, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.ConcurrentTransactions)
}
