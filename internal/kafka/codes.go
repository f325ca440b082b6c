package kafka

import "strconv"

// Code is a Kafka protocol error code.
//
// Source: org.apache.kafka.common.protocol.Errors of Kafka 4.4.
type Code int16

// The protocol's error codes, by Kafka's names.
const (
	ErrUnknownServerError                 Code = -1  // UNKNOWN_SERVER_ERROR.
	ErrNone                               Code = 0   // NONE: no error.
	ErrOffsetOutOfRange                   Code = 1   // OFFSET_OUT_OF_RANGE.
	ErrCorruptMessage                     Code = 2   // CORRUPT_MESSAGE.
	ErrUnknownTopicOrPartition            Code = 3   // UNKNOWN_TOPIC_OR_PARTITION.
	ErrInvalidFetchSize                   Code = 4   // INVALID_FETCH_SIZE.
	ErrLeaderNotAvailable                 Code = 5   // LEADER_NOT_AVAILABLE.
	ErrNotLeaderOrFollower                Code = 6   // NOT_LEADER_OR_FOLLOWER.
	ErrRequestTimedOut                    Code = 7   // REQUEST_TIMED_OUT.
	ErrBrokerNotAvailable                 Code = 8   // BROKER_NOT_AVAILABLE.
	ErrReplicaNotAvailable                Code = 9   // REPLICA_NOT_AVAILABLE.
	ErrMessageTooLarge                    Code = 10  // MESSAGE_TOO_LARGE.
	ErrStaleControllerEpoch               Code = 11  // STALE_CONTROLLER_EPOCH.
	ErrOffsetMetadataTooLarge             Code = 12  // OFFSET_METADATA_TOO_LARGE.
	ErrNetworkException                   Code = 13  // NETWORK_EXCEPTION.
	ErrCoordinatorLoadInProgress          Code = 14  // COORDINATOR_LOAD_IN_PROGRESS.
	ErrCoordinatorNotAvailable            Code = 15  // COORDINATOR_NOT_AVAILABLE.
	ErrNotCoordinator                     Code = 16  // NOT_COORDINATOR.
	ErrInvalidTopicException              Code = 17  // INVALID_TOPIC_EXCEPTION.
	ErrRecordListTooLarge                 Code = 18  // RECORD_LIST_TOO_LARGE.
	ErrNotEnoughReplicas                  Code = 19  // NOT_ENOUGH_REPLICAS.
	ErrNotEnoughReplicasAfterAppend       Code = 20  // NOT_ENOUGH_REPLICAS_AFTER_APPEND.
	ErrInvalidRequiredAcks                Code = 21  // INVALID_REQUIRED_ACKS.
	ErrIllegalGeneration                  Code = 22  // ILLEGAL_GENERATION.
	ErrInconsistentGroupProtocol          Code = 23  // INCONSISTENT_GROUP_PROTOCOL.
	ErrInvalidGroupID                     Code = 24  // INVALID_GROUP_ID.
	ErrUnknownMemberID                    Code = 25  // UNKNOWN_MEMBER_ID.
	ErrInvalidSessionTimeout              Code = 26  // INVALID_SESSION_TIMEOUT.
	ErrRebalanceInProgress                Code = 27  // REBALANCE_IN_PROGRESS.
	ErrInvalidCommitOffsetSize            Code = 28  // INVALID_COMMIT_OFFSET_SIZE.
	ErrTopicAuthorizationFailed           Code = 29  // TOPIC_AUTHORIZATION_FAILED.
	ErrGroupAuthorizationFailed           Code = 30  // GROUP_AUTHORIZATION_FAILED.
	ErrClusterAuthorizationFailed         Code = 31  // CLUSTER_AUTHORIZATION_FAILED.
	ErrInvalidTimestamp                   Code = 32  // INVALID_TIMESTAMP.
	ErrUnsupportedSASLMechanism           Code = 33  // UNSUPPORTED_SASL_MECHANISM.
	ErrIllegalSASLState                   Code = 34  // ILLEGAL_SASL_STATE.
	ErrUnsupportedVersion                 Code = 35  // UNSUPPORTED_VERSION.
	ErrTopicAlreadyExists                 Code = 36  // TOPIC_ALREADY_EXISTS.
	ErrInvalidPartitions                  Code = 37  // INVALID_PARTITIONS.
	ErrInvalidReplicationFactor           Code = 38  // INVALID_REPLICATION_FACTOR.
	ErrInvalidReplicaAssignment           Code = 39  // INVALID_REPLICA_ASSIGNMENT.
	ErrInvalidConfig                      Code = 40  // INVALID_CONFIG.
	ErrNotController                      Code = 41  // NOT_CONTROLLER.
	ErrInvalidRequest                     Code = 42  // INVALID_REQUEST.
	ErrUnsupportedForMessageFormat        Code = 43  // UNSUPPORTED_FOR_MESSAGE_FORMAT.
	ErrPolicyViolation                    Code = 44  // POLICY_VIOLATION.
	ErrOutOfOrderSequenceNumber           Code = 45  // OUT_OF_ORDER_SEQUENCE_NUMBER.
	ErrDuplicateSequenceNumber            Code = 46  // DUPLICATE_SEQUENCE_NUMBER.
	ErrInvalidProducerEpoch               Code = 47  // INVALID_PRODUCER_EPOCH.
	ErrInvalidTxnState                    Code = 48  // INVALID_TXN_STATE.
	ErrInvalidProducerIDMapping           Code = 49  // INVALID_PRODUCER_ID_MAPPING.
	ErrInvalidTransactionTimeout          Code = 50  // INVALID_TRANSACTION_TIMEOUT.
	ErrConcurrentTransactions             Code = 51  // CONCURRENT_TRANSACTIONS.
	ErrTransactionCoordinatorFenced       Code = 52  // TRANSACTION_COORDINATOR_FENCED.
	ErrTransactionalIDAuthorizationFailed Code = 53  // TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
	ErrSecurityDisabled                   Code = 54  // SECURITY_DISABLED.
	ErrOperationNotAttempted              Code = 55  // OPERATION_NOT_ATTEMPTED.
	ErrKafkaStorageError                  Code = 56  // KAFKA_STORAGE_ERROR.
	ErrLogDirNotFound                     Code = 57  // LOG_DIR_NOT_FOUND.
	ErrSASLAuthenticationFailed           Code = 58  // SASL_AUTHENTICATION_FAILED.
	ErrUnknownProducerID                  Code = 59  // UNKNOWN_PRODUCER_ID.
	ErrReassignmentInProgress             Code = 60  // REASSIGNMENT_IN_PROGRESS.
	ErrDelegationTokenAuthDisabled        Code = 61  // DELEGATION_TOKEN_AUTH_DISABLED.
	ErrDelegationTokenNotFound            Code = 62  // DELEGATION_TOKEN_NOT_FOUND.
	ErrDelegationTokenOwnerMismatch       Code = 63  // DELEGATION_TOKEN_OWNER_MISMATCH.
	ErrDelegationTokenRequestNotAllowed   Code = 64  // DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
	ErrDelegationTokenAuthorizationFailed Code = 65  // DELEGATION_TOKEN_AUTHORIZATION_FAILED.
	ErrDelegationTokenExpired             Code = 66  // DELEGATION_TOKEN_EXPIRED.
	ErrInvalidPrincipalType               Code = 67  // INVALID_PRINCIPAL_TYPE.
	ErrNonEmptyGroup                      Code = 68  // NON_EMPTY_GROUP.
	ErrGroupIDNotFound                    Code = 69  // GROUP_ID_NOT_FOUND.
	ErrFetchSessionIDNotFound             Code = 70  // FETCH_SESSION_ID_NOT_FOUND.
	ErrInvalidFetchSessionEpoch           Code = 71  // INVALID_FETCH_SESSION_EPOCH.
	ErrListenerNotFound                   Code = 72  // LISTENER_NOT_FOUND.
	ErrTopicDeletionDisabled              Code = 73  // TOPIC_DELETION_DISABLED.
	ErrFencedLeaderEpoch                  Code = 74  // FENCED_LEADER_EPOCH.
	ErrUnknownLeaderEpoch                 Code = 75  // UNKNOWN_LEADER_EPOCH.
	ErrUnsupportedCompressionType         Code = 76  // UNSUPPORTED_COMPRESSION_TYPE.
	ErrStaleBrokerEpoch                   Code = 77  // STALE_BROKER_EPOCH.
	ErrOffsetNotAvailable                 Code = 78  // OFFSET_NOT_AVAILABLE.
	ErrMemberIDRequired                   Code = 79  // MEMBER_ID_REQUIRED.
	ErrPreferredLeaderNotAvailable        Code = 80  // PREFERRED_LEADER_NOT_AVAILABLE.
	ErrGroupMaxSizeReached                Code = 81  // GROUP_MAX_SIZE_REACHED.
	ErrFencedInstanceID                   Code = 82  // FENCED_INSTANCE_ID.
	ErrEligibleLeadersNotAvailable        Code = 83  // ELIGIBLE_LEADERS_NOT_AVAILABLE.
	ErrElectionNotNeeded                  Code = 84  // ELECTION_NOT_NEEDED.
	ErrNoReassignmentInProgress           Code = 85  // NO_REASSIGNMENT_IN_PROGRESS.
	ErrGroupSubscribedToTopic             Code = 86  // GROUP_SUBSCRIBED_TO_TOPIC.
	ErrInvalidRecord                      Code = 87  // INVALID_RECORD.
	ErrUnstableOffsetCommit               Code = 88  // UNSTABLE_OFFSET_COMMIT.
	ErrThrottlingQuotaExceeded            Code = 89  // THROTTLING_QUOTA_EXCEEDED.
	ErrProducerFenced                     Code = 90  // PRODUCER_FENCED.
	ErrResourceNotFound                   Code = 91  // RESOURCE_NOT_FOUND.
	ErrDuplicateResource                  Code = 92  // DUPLICATE_RESOURCE.
	ErrUnacceptableCredential             Code = 93  // UNACCEPTABLE_CREDENTIAL.
	ErrInconsistentVoterSet               Code = 94  // INCONSISTENT_VOTER_SET.
	ErrInvalidUpdateVersion               Code = 95  // INVALID_UPDATE_VERSION.
	ErrFeatureUpdateFailed                Code = 96  // FEATURE_UPDATE_FAILED.
	ErrPrincipalDeserializationFailure    Code = 97  // PRINCIPAL_DESERIALIZATION_FAILURE.
	ErrSnapshotNotFound                   Code = 98  // SNAPSHOT_NOT_FOUND.
	ErrPositionOutOfRange                 Code = 99  // POSITION_OUT_OF_RANGE.
	ErrUnknownTopicID                     Code = 100 // UNKNOWN_TOPIC_ID.
	ErrDuplicateBrokerRegistration        Code = 101 // DUPLICATE_BROKER_REGISTRATION.
	ErrBrokerIDNotRegistered              Code = 102 // BROKER_ID_NOT_REGISTERED.
	ErrInconsistentTopicID                Code = 103 // INCONSISTENT_TOPIC_ID.
	ErrInconsistentClusterID              Code = 104 // INCONSISTENT_CLUSTER_ID.
	ErrTransactionalIDNotFound            Code = 105 // TRANSACTIONAL_ID_NOT_FOUND.
	ErrFetchSessionTopicIDError           Code = 106 // FETCH_SESSION_TOPIC_ID_ERROR.
	ErrIneligibleReplica                  Code = 107 // INELIGIBLE_REPLICA.
	ErrNewLeaderElected                   Code = 108 // NEW_LEADER_ELECTED.
	ErrOffsetMovedToTieredStorage         Code = 109 // OFFSET_MOVED_TO_TIERED_STORAGE.
	ErrFencedMemberEpoch                  Code = 110 // FENCED_MEMBER_EPOCH.
	ErrUnreleasedInstanceID               Code = 111 // UNRELEASED_INSTANCE_ID.
	ErrUnsupportedAssignor                Code = 112 // UNSUPPORTED_ASSIGNOR.
	ErrStaleMemberEpoch                   Code = 113 // STALE_MEMBER_EPOCH.
	ErrMismatchedEndpointType             Code = 114 // MISMATCHED_ENDPOINT_TYPE.
	ErrUnsupportedEndpointType            Code = 115 // UNSUPPORTED_ENDPOINT_TYPE.
	ErrUnknownControllerID                Code = 116 // UNKNOWN_CONTROLLER_ID.
	ErrUnknownSubscriptionID              Code = 117 // UNKNOWN_SUBSCRIPTION_ID.
	ErrTelemetryTooLarge                  Code = 118 // TELEMETRY_TOO_LARGE.
	ErrInvalidRegistration                Code = 119 // INVALID_REGISTRATION.
	ErrTransactionAbortable               Code = 120 // TRANSACTION_ABORTABLE.
	ErrInvalidRecordState                 Code = 121 // INVALID_RECORD_STATE.
	ErrShareSessionNotFound               Code = 122 // SHARE_SESSION_NOT_FOUND.
	ErrInvalidShareSessionEpoch           Code = 123 // INVALID_SHARE_SESSION_EPOCH.
	ErrFencedStateEpoch                   Code = 124 // FENCED_STATE_EPOCH.
	ErrInvalidVoterKey                    Code = 125 // INVALID_VOTER_KEY.
	ErrDuplicateVoter                     Code = 126 // DUPLICATE_VOTER.
	ErrVoterNotFound                      Code = 127 // VOTER_NOT_FOUND.
	ErrInvalidRegularExpression           Code = 128 // INVALID_REGULAR_EXPRESSION.
	ErrRebootstrapRequired                Code = 129 // REBOOTSTRAP_REQUIRED.
)

// String returns Kafka's name of the code, such as NOT_LEADER_OR_FOLLOWER.
func (c Code) String() string {
	switch c {
	case ErrUnknownServerError:
		return "UNKNOWN_SERVER_ERROR"
	case ErrNone:
		return "NONE"
	case ErrOffsetOutOfRange:
		return "OFFSET_OUT_OF_RANGE"
	case ErrCorruptMessage:
		return "CORRUPT_MESSAGE"
	case ErrUnknownTopicOrPartition:
		return "UNKNOWN_TOPIC_OR_PARTITION"
	case ErrInvalidFetchSize:
		return "INVALID_FETCH_SIZE"
	case ErrLeaderNotAvailable:
		return "LEADER_NOT_AVAILABLE"
	case ErrNotLeaderOrFollower:
		return "NOT_LEADER_OR_FOLLOWER"
	case ErrRequestTimedOut:
		return "REQUEST_TIMED_OUT"
	case ErrBrokerNotAvailable:
		return "BROKER_NOT_AVAILABLE"
	case ErrReplicaNotAvailable:
		return "REPLICA_NOT_AVAILABLE"
	case ErrMessageTooLarge:
		return "MESSAGE_TOO_LARGE"
	case ErrStaleControllerEpoch:
		return "STALE_CONTROLLER_EPOCH"
	case ErrOffsetMetadataTooLarge:
		return "OFFSET_METADATA_TOO_LARGE"
	case ErrNetworkException:
		return "NETWORK_EXCEPTION"
	case ErrCoordinatorLoadInProgress:
		return "COORDINATOR_LOAD_IN_PROGRESS"
	case ErrCoordinatorNotAvailable:
		return "COORDINATOR_NOT_AVAILABLE"
	case ErrNotCoordinator:
		return "NOT_COORDINATOR"
	case ErrInvalidTopicException:
		return "INVALID_TOPIC_EXCEPTION"
	case ErrRecordListTooLarge:
		return "RECORD_LIST_TOO_LARGE"
	case ErrNotEnoughReplicas:
		return "NOT_ENOUGH_REPLICAS"
	case ErrNotEnoughReplicasAfterAppend:
		return "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
	case ErrInvalidRequiredAcks:
		return "INVALID_REQUIRED_ACKS"
	case ErrIllegalGeneration:
		return "ILLEGAL_GENERATION"
	case ErrInconsistentGroupProtocol:
		return "INCONSISTENT_GROUP_PROTOCOL"
	case ErrInvalidGroupID:
		return "INVALID_GROUP_ID"
	case ErrUnknownMemberID:
		return "UNKNOWN_MEMBER_ID"
	case ErrInvalidSessionTimeout:
		return "INVALID_SESSION_TIMEOUT"
	case ErrRebalanceInProgress:
		return "REBALANCE_IN_PROGRESS"
	case ErrInvalidCommitOffsetSize:
		return "INVALID_COMMIT_OFFSET_SIZE"
	case ErrTopicAuthorizationFailed:
		return "TOPIC_AUTHORIZATION_FAILED"
	case ErrGroupAuthorizationFailed:
		return "GROUP_AUTHORIZATION_FAILED"
	case ErrClusterAuthorizationFailed:
		return "CLUSTER_AUTHORIZATION_FAILED"
	case ErrInvalidTimestamp:
		return "INVALID_TIMESTAMP"
	case ErrUnsupportedSASLMechanism:
		return "UNSUPPORTED_SASL_MECHANISM"
	case ErrIllegalSASLState:
		return "ILLEGAL_SASL_STATE"
	case ErrUnsupportedVersion:
		return "UNSUPPORTED_VERSION"
	case ErrTopicAlreadyExists:
		return "TOPIC_ALREADY_EXISTS"
	case ErrInvalidPartitions:
		return "INVALID_PARTITIONS"
	case ErrInvalidReplicationFactor:
		return "INVALID_REPLICATION_FACTOR"
	case ErrInvalidReplicaAssignment:
		return "INVALID_REPLICA_ASSIGNMENT"
	case ErrInvalidConfig:
		return "INVALID_CONFIG"
	case ErrNotController:
		return "NOT_CONTROLLER"
	case ErrInvalidRequest:
		return "INVALID_REQUEST"
	case ErrUnsupportedForMessageFormat:
		return "UNSUPPORTED_FOR_MESSAGE_FORMAT"
	case ErrPolicyViolation:
		return "POLICY_VIOLATION"
	case ErrOutOfOrderSequenceNumber:
		return "OUT_OF_ORDER_SEQUENCE_NUMBER"
	case ErrDuplicateSequenceNumber:
		return "DUPLICATE_SEQUENCE_NUMBER"
	case ErrInvalidProducerEpoch:
		return "INVALID_PRODUCER_EPOCH"
	case ErrInvalidTxnState:
		return "INVALID_TXN_STATE"
	case ErrInvalidProducerIDMapping:
		return "INVALID_PRODUCER_ID_MAPPING"
	case ErrInvalidTransactionTimeout:
		return "INVALID_TRANSACTION_TIMEOUT"
	case ErrConcurrentTransactions:
		return "CONCURRENT_TRANSACTIONS"
	case ErrTransactionCoordinatorFenced:
		return "TRANSACTION_COORDINATOR_FENCED"
	case ErrTransactionalIDAuthorizationFailed:
		return "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
	case ErrSecurityDisabled:
		return "SECURITY_DISABLED"
	case ErrOperationNotAttempted:
		return "OPERATION_NOT_ATTEMPTED"
	case ErrKafkaStorageError:
		return "KAFKA_STORAGE_ERROR"
	case ErrLogDirNotFound:
		return "LOG_DIR_NOT_FOUND"
	case ErrSASLAuthenticationFailed:
		return "SASL_AUTHENTICATION_FAILED"
	case ErrUnknownProducerID:
		return "UNKNOWN_PRODUCER_ID"
	case ErrReassignmentInProgress:
		return "REASSIGNMENT_IN_PROGRESS"
	case ErrDelegationTokenAuthDisabled:
		return "DELEGATION_TOKEN_AUTH_DISABLED"
	case ErrDelegationTokenNotFound:
		return "DELEGATION_TOKEN_NOT_FOUND"
	case ErrDelegationTokenOwnerMismatch:
		return "DELEGATION_TOKEN_OWNER_MISMATCH"
	case ErrDelegationTokenRequestNotAllowed:
		return "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
	case ErrDelegationTokenAuthorizationFailed:
		return "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
	case ErrDelegationTokenExpired:
		return "DELEGATION_TOKEN_EXPIRED"
	case ErrInvalidPrincipalType:
		return "INVALID_PRINCIPAL_TYPE"
	case ErrNonEmptyGroup:
		return "NON_EMPTY_GROUP"
	case ErrGroupIDNotFound:
		return "GROUP_ID_NOT_FOUND"
	case ErrFetchSessionIDNotFound:
		return "FETCH_SESSION_ID_NOT_FOUND"
	case ErrInvalidFetchSessionEpoch:
		return "INVALID_FETCH_SESSION_EPOCH"
	case ErrListenerNotFound:
		return "LISTENER_NOT_FOUND"
	case ErrTopicDeletionDisabled:
		return "TOPIC_DELETION_DISABLED"
	case ErrFencedLeaderEpoch:
		return "FENCED_LEADER_EPOCH"
	case ErrUnknownLeaderEpoch:
		return "UNKNOWN_LEADER_EPOCH"
	case ErrUnsupportedCompressionType:
		return "UNSUPPORTED_COMPRESSION_TYPE"
	case ErrStaleBrokerEpoch:
		return "STALE_BROKER_EPOCH"
	case ErrOffsetNotAvailable:
		return "OFFSET_NOT_AVAILABLE"
	case ErrMemberIDRequired:
		return "MEMBER_ID_REQUIRED"
	case ErrPreferredLeaderNotAvailable:
		return "PREFERRED_LEADER_NOT_AVAILABLE"
	case ErrGroupMaxSizeReached:
		return "GROUP_MAX_SIZE_REACHED"
	case ErrFencedInstanceID:
		return "FENCED_INSTANCE_ID"
	case ErrEligibleLeadersNotAvailable:
		return "ELIGIBLE_LEADERS_NOT_AVAILABLE"
	case ErrElectionNotNeeded:
		return "ELECTION_NOT_NEEDED"
	case ErrNoReassignmentInProgress:
		return "NO_REASSIGNMENT_IN_PROGRESS"
	case ErrGroupSubscribedToTopic:
		return "GROUP_SUBSCRIBED_TO_TOPIC"
	case ErrInvalidRecord:
		return "INVALID_RECORD"
	case ErrUnstableOffsetCommit:
		return "UNSTABLE_OFFSET_COMMIT"
	case ErrThrottlingQuotaExceeded:
		return "THROTTLING_QUOTA_EXCEEDED"
	case ErrProducerFenced:
		return "PRODUCER_FENCED"
	case ErrResourceNotFound:
		return "RESOURCE_NOT_FOUND"
	case ErrDuplicateResource:
		return "DUPLICATE_RESOURCE"
	case ErrUnacceptableCredential:
		return "UNACCEPTABLE_CREDENTIAL"
	case ErrInconsistentVoterSet:
		return "INCONSISTENT_VOTER_SET"
	case ErrInvalidUpdateVersion:
		return "INVALID_UPDATE_VERSION"
	case ErrFeatureUpdateFailed:
		return "FEATURE_UPDATE_FAILED"
	case ErrPrincipalDeserializationFailure:
		return "PRINCIPAL_DESERIALIZATION_FAILURE"
	case ErrSnapshotNotFound:
		return "SNAPSHOT_NOT_FOUND"
	case ErrPositionOutOfRange:
		return "POSITION_OUT_OF_RANGE"
	case ErrUnknownTopicID:
		return "UNKNOWN_TOPIC_ID"
	case ErrDuplicateBrokerRegistration:
		return "DUPLICATE_BROKER_REGISTRATION"
	case ErrBrokerIDNotRegistered:
		return "BROKER_ID_NOT_REGISTERED"
	case ErrInconsistentTopicID:
		return "INCONSISTENT_TOPIC_ID"
	case ErrInconsistentClusterID:
		return "INCONSISTENT_CLUSTER_ID"
	case ErrTransactionalIDNotFound:
		return "TRANSACTIONAL_ID_NOT_FOUND"
	case ErrFetchSessionTopicIDError:
		return "FETCH_SESSION_TOPIC_ID_ERROR"
	case ErrIneligibleReplica:
		return "INELIGIBLE_REPLICA"
	case ErrNewLeaderElected:
		return "NEW_LEADER_ELECTED"
	case ErrOffsetMovedToTieredStorage:
		return "OFFSET_MOVED_TO_TIERED_STORAGE"
	case ErrFencedMemberEpoch:
		return "FENCED_MEMBER_EPOCH"
	case ErrUnreleasedInstanceID:
		return "UNRELEASED_INSTANCE_ID"
	case ErrUnsupportedAssignor:
		return "UNSUPPORTED_ASSIGNOR"
	case ErrStaleMemberEpoch:
		return "STALE_MEMBER_EPOCH"
	case ErrMismatchedEndpointType:
		return "MISMATCHED_ENDPOINT_TYPE"
	case ErrUnsupportedEndpointType:
		return "UNSUPPORTED_ENDPOINT_TYPE"
	case ErrUnknownControllerID:
		return "UNKNOWN_CONTROLLER_ID"
	case ErrUnknownSubscriptionID:
		return "UNKNOWN_SUBSCRIPTION_ID"
	case ErrTelemetryTooLarge:
		return "TELEMETRY_TOO_LARGE"
	case ErrInvalidRegistration:
		return "INVALID_REGISTRATION"
	case ErrTransactionAbortable:
		return "TRANSACTION_ABORTABLE"
	case ErrInvalidRecordState:
		return "INVALID_RECORD_STATE"
	case ErrShareSessionNotFound:
		return "SHARE_SESSION_NOT_FOUND"
	case ErrInvalidShareSessionEpoch:
		return "INVALID_SHARE_SESSION_EPOCH"
	case ErrFencedStateEpoch:
		return "FENCED_STATE_EPOCH"
	case ErrInvalidVoterKey:
		return "INVALID_VOTER_KEY"
	case ErrDuplicateVoter:
		return "DUPLICATE_VOTER"
	case ErrVoterNotFound:
		return "VOTER_NOT_FOUND"
	case ErrInvalidRegularExpression:
		return "INVALID_REGULAR_EXPRESSION"
	case ErrRebootstrapRequired:
		return "REBOOTSTRAP_REQUIRED"
	}
	return "CODE_" + strconv.Itoa(int(c))
}

// Retriable reports whether a client may expect the same request to succeed later.
func (c Code) Retriable() bool {
	switch c {
	case ErrCorruptMessage,
		ErrUnknownTopicOrPartition,
		ErrLeaderNotAvailable,
		ErrNotLeaderOrFollower,
		ErrRequestTimedOut,
		ErrReplicaNotAvailable,
		ErrNetworkException,
		ErrCoordinatorLoadInProgress,
		ErrCoordinatorNotAvailable,
		ErrNotCoordinator,
		ErrNotEnoughReplicas,
		ErrNotEnoughReplicasAfterAppend,
		ErrNotController,
		ErrConcurrentTransactions,
		ErrKafkaStorageError,
		ErrFetchSessionIDNotFound,
		ErrInvalidFetchSessionEpoch,
		ErrListenerNotFound,
		ErrFencedLeaderEpoch,
		ErrUnknownLeaderEpoch,
		ErrOffsetNotAvailable,
		ErrPreferredLeaderNotAvailable,
		ErrEligibleLeadersNotAvailable,
		ErrElectionNotNeeded,
		ErrUnstableOffsetCommit,
		ErrThrottlingQuotaExceeded,
		ErrUnknownTopicID,
		ErrInconsistentTopicID,
		ErrFetchSessionTopicIDError,
		ErrShareSessionNotFound,
		ErrInvalidShareSessionEpoch:
		return true
	}
	return false
}

// Error is a refusal that already carries its protocol code. The pure machines
// return it where the protocol itself is their language; storage rooms use
// typed errors of their own and leave the code to the edge.
type Error struct {
	Code    Code
	Message string // What was asked, what the limit is, what to do.
}

// Error implements error.
func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }
