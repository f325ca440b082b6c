// Package refusal is the one place where errors of the rooms become what a
// client is told: a protocol code and words. The Kafka requests and the HTTP API
// both answer with it, so that a refusal has one name, whoever asks.
//
// It may be called from any goroutine. Invariant: every error has a code; one
// that nothing here knows is UNKNOWN_SERVER_ERROR. Deliberately absent: the
// status of HTTP that a code comes with (package httpapi).
package refusal

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/record"
)

// CodeOf returns the protocol code of an error, kafka.ErrNone for nil.
func CodeOf(err error) kafka.Code {
	if err == nil {
		return kafka.ErrNone
	}
	var (
		coded       *kafka.Error
		invalid     *record.InvalidError
		fenced      *partition.FencedEpochError
		unknown     *partition.UnknownEpochError
		replicas    *partition.NotEnoughReplicasError
		outOf       *commitlog.OffsetOutOfRangeError
		corrupt     *commitlog.CorruptionError
		tooLarge    *commitlog.BatchTooLargeError
		disk        *fs.PathError
		system      syscall.Errno
		sequence    *producerstate.OutOfOrderSequenceError
		epoch       *producerstate.InvalidEpochError
		unknownID   *producerstate.UnknownProducerError
		transaction *producerstate.TransactionStateError
		coordinator *producerstate.CoordinatorFencedError
	)
	switch {
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &invalid):
		return invalidCode(invalid.Reason)
	case errors.As(err, &fenced):
		return kafka.ErrFencedLeaderEpoch
	case errors.As(err, &unknown):
		return kafka.ErrUnknownLeaderEpoch
	case errors.As(err, &replicas) && replicas.Appended:
		return kafka.ErrNotEnoughReplicasAfterAppend
	case errors.As(err, &replicas):
		return kafka.ErrNotEnoughReplicas
	case errors.As(err, &outOf):
		return kafka.ErrOffsetOutOfRange
	case errors.Is(err, commitlog.ErrFrozen):
		return kafka.ErrKafkaStorageError
	case errors.As(err, &corrupt), errors.Is(err, record.ErrShort):
		return kafka.ErrCorruptMessage
	case errors.As(err, &sequence):
		return kafka.ErrOutOfOrderSequenceNumber
	case errors.As(err, &epoch):
		return kafka.ErrInvalidProducerEpoch
	case errors.As(err, &unknownID):
		return kafka.ErrUnknownProducerID
	case errors.As(err, &transaction):
		return kafka.ErrInvalidTxnState
	case errors.As(err, &coordinator):
		return kafka.ErrTransactionCoordinatorFenced
	case errors.Is(err, partition.ErrNotLeader):
		return kafka.ErrNotLeaderOrFollower
	case errors.Is(err, partition.ErrDeleted), errors.Is(err, commitlog.ErrDeleted):
		return kafka.ErrUnknownTopicOrPartition
	case errors.As(err, &tooLarge):
		return kafka.ErrRecordListTooLarge
	case errors.Is(err, commitlog.ErrTruncating):
		return kafka.ErrNotLeaderOrFollower
	case errors.Is(err, commitlog.ErrOffline), errors.As(err, &disk), errors.As(err, &system):
		return kafka.ErrKafkaStorageError
	case errors.Is(err, context.DeadlineExceeded):
		return kafka.ErrRequestTimedOut
	case errors.Is(err, context.Canceled):
		return kafka.ErrNotLeaderOrFollower
	}
	return rarelyCode(err)
}

// memberCode is why a change of the quorum's voters can't be made (KIP-853).
func memberCode(p quorum.MemberProblem) kafka.Code {
	switch p {
	case quorum.AlreadyVoter:
		return kafka.ErrDuplicateVoter
	case quorum.NotMember:
		return kafka.ErrVoterNotFound
	case quorum.OtherDirectory:
		return kafka.ErrInvalidVoterKey
	case quorum.LastVoter, quorum.TooFewLeft, quorum.Unreachable, quorum.Nameless, quorum.LongAddress:
		return kafka.ErrInvalidRequest
	}
	return kafka.ErrUnknownServerError
}

// rarelyCode maps errors that a client sees when something is wrong with the
// cluster or with this broker's disk, or that only other rooms should see. None
// becomes a code that clients give up on without need.
func rarelyCode(err error) kafka.Code {
	var (
		notLeader  *quorum.NotLeaderError
		member     *quorum.MemberError
		stranger   *quorum.StrangerError
		twin       *quorum.TwinError
		value      *config.ValueError
		unexpected *commitlog.UnexpectedOffsetError
		damage     = []any{
			new(*quorum.CorruptionError), new(*quorum.VersionError), new(*commitlog.NewerFormatError),
			new(*producerstate.SnapshotError), new(*metadata.ReplayError), new(*metadata.FormatError),
			new(*group.DecodeError),
		}
	)
	switch {
	case errors.As(err, &member):
		return memberCode(member.Problem)
	case errors.As(err, &stranger):
		return kafka.ErrInvalidVoterKey
	case errors.As(err, &twin):
		return kafka.ErrDuplicateBrokerRegistration
	case errors.Is(err, partition.ErrNotSettled), errors.Is(err, partition.ErrNotYet):
		return kafka.ErrOffsetNotAvailable
	case errors.Is(err, isr.ErrNotReplica):
		return kafka.ErrUnknownLeaderEpoch // The one who asks knows more of the metadata, or less.
	case errors.Is(err, isr.ErrStaleFetch), errors.Is(err, partition.ErrNotFollower):
		return kafka.ErrNotLeaderOrFollower
	case errors.As(err, &notLeader), errors.Is(err, quorum.ErrStopped):
		return kafka.ErrNotController
	case errors.Is(err, quorum.ErrEntryTooLarge):
		return kafka.ErrInvalidRequest
	case errors.As(err, &value):
		return kafka.ErrInvalidConfig
	case errors.As(err, &unexpected):
		return kafka.ErrNotLeaderOrFollower
	case errors.Is(err, record.ErrTooLarge):
		return kafka.ErrMessageTooLarge
	case errors.Is(err, commitlog.ErrBusy), errors.Is(err, group.ErrUnknownRecord):
		return kafka.ErrKafkaStorageError
	}
	for _, target := range damage {
		if errors.As(err, target) {
			return kafka.ErrKafkaStorageError
		}
	}
	return kafka.ErrUnknownServerError
}

// MessageOf returns what a client is told in words. A full disk gets the words
// it needs; everything else already carries them.
func MessageOf(err error) string {
	var coded *kafka.Error
	switch {
	case errors.As(err, &coded):
		return coded.Message
	case errors.Is(err, quorum.ErrEntryTooLarge):
		return "the request asks for more than one decision can hold: ask for less at once"
	case errors.Is(err, syscall.ENOSPC):
		return "the broker's disk is full: try again; nothing was lost, and freeing space is enough to go on"
	}
	return err.Error()
}

// RecordOf returns the index of the record that an error is about, or -1.
func RecordOf(err error) int32 {
	var invalid *record.InvalidError
	if errors.As(err, &invalid) {
		return invalid.RecordIndex
	}
	return record.WholeBatch
}

// invalidCode is the code of a batch that was refused.
func invalidCode(r record.Reason) kafka.Code {
	switch r {
	case record.ReasonCorrupt:
		return kafka.ErrCorruptMessage
	case record.ReasonInvalidRecord:
		return kafka.ErrInvalidRecord
	case record.ReasonInvalidTimestamp:
		return kafka.ErrInvalidTimestamp
	case record.ReasonTooLarge:
		return kafka.ErrMessageTooLarge
	case record.ReasonUnsupportedCodec:
		return kafka.ErrUnsupportedCompressionType
	}
	return kafka.ErrUnknownServerError
}
