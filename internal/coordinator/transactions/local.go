package transactions

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// Local writes markers to the partitions that this broker leads.
type Local struct {
	Partitions *partition.Table
	// Offsets ends a transaction in a partition of __consumer_offsets, whose group
	// coordinator must hear of it: see coordinator.Coordinator.Mark.
	Offsets func(partition int32, believed kafka.LeaderEpoch, m commitlog.Marker, to shard.Caller) error
	CodeOf  func(error) kafka.Code
	Now     func() time.Time
}

// Write writes markers and returns a code for each when all are committed or refused,
// or when ctx ends. All are appended before the first is waited for.
func (l *Local) Write(ctx context.Context, markers []Marker) []kafka.Code {
	waits := make([]func(context.Context) error, len(markers))
	for i := range markers {
		waits[i] = l.append(&markers[i])
	}
	codes := make([]kafka.Code, len(markers))
	for i, wait := range waits {
		if err := wait(ctx); err != nil {
			codes[i] = l.CodeOf(err)
		}
	}
	return codes
}

// append appends a marker and returns what waits for it to be committed.
func (l *Local) append(m *Marker) func(context.Context) error {
	log := commitlog.Marker{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch,
		Commit: m.Commit, Bumped: m.Version >= bumps, Decision: m.Decision,
	}
	failed := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	if m.Partition.Topic == metadata.OffsetsTopic {
		in := coordinator.NewInbox()
		if err := l.Offsets(m.Partition.Partition, m.LeaderEpoch, log, in); err != nil {
			return failed(err)
		}
		return func(ctx context.Context) error { return outcome(ctx, in) }
	}
	p := l.Partitions.Get(m.Partition.Topic, m.Partition.Partition)
	if p == nil || !m.TopicID.IsZero() && m.TopicID != p.ID().ID {
		return failed(partition.ErrNotLeader)
	}
	marked, err := p.AppendMarkers(m.LeaderEpoch, []commitlog.Marker{log}, l.Now())
	switch {
	case err != nil:
		return failed(err)
	case marked.Refused != nil && marked.Refused[0] != nil:
		return failed(marked.Refused[0])
	}
	return func(ctx context.Context) error { return p.Await(ctx, nil, marked.LeaderEpoch, marked.End) }
}

// bumps is the first version of clients' transactions that raises the epoch.
const bumps = 2

// outcome waits for the reply to a marker of a group coordinator.
func outcome(ctx context.Context, in coordinator.Inbox) error {
	response, err := in.Reply(ctx)
	if err != nil {
		return err
	}
	if code := response.(*shard.Outcome).Code; code != kafka.ErrNone {
		return &kafka.Error{Code: code, Message: "the marker was not committed in time: it is written again"}
	}
	return nil
}
