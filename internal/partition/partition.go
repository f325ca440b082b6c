// Package partition holds the partition replicas of this broker: one Partition
// each, with its log, its role and what waits on it, and the Table of them.
//
// A Partition assumes that batches given to Append were validated (package
// record) and that the metadata image names this broker as a replica. It may be
// called from any goroutine.
//
//	logStartOffset     lastStableOffset     highWatermark      logEndOffset
//	|--- decided ------|--- may be open ----|-- not yet safe --|
//
// Invariants:
//
//	0 <= logStartOffset <= lastStableOffset <= highWatermark <= logEndOffset
//	the high watermark of one leader never falls
//	a record is appended only under the leader epoch that the image names
//
// Lock order: role (read or write) -> the log's own lock; progress is taken
// alone or under role, never around the log. Waiters are woken without a lock.
//
// Deliberately absent: following another leader (package fetcher), and any
// knowledge of the protocol's bytes.
package partition

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Acks is a producer's wish: how many replicas must have a record before it is
// acknowledged.
type Acks int16

// The values of Acks.
const (
	AcksNone   Acks = 0
	AcksLeader Acks = 1
	AcksAll    Acks = -1
)

// The refusals of a partition.
var (
	ErrNotLeader = errors.New("this broker is not the partition's leader")
	ErrDeleted   = errors.New("the partition was deleted")
)

// FencedEpochError refuses a request made under an older leader epoch.
type FencedEpochError struct{ Requested, Current kafka.LeaderEpoch }

// Error implements error.
func (e *FencedEpochError) Error() string {
	return fmt.Sprintf("leader epoch %d is older than the partition's %d: refresh the metadata",
		e.Requested, e.Current)
}

// UnknownEpochError refuses a request made under a leader epoch that this
// broker has not heard of yet.
type UnknownEpochError struct{ Requested, Current kafka.LeaderEpoch }

// Error implements error.
func (e *UnknownEpochError) Error() string {
	return fmt.Sprintf("leader epoch %d is newer than the %d known here: try again",
		e.Requested, e.Current)
}

// NotEnoughReplicasError refuses an append that acks=all could not protect.
type NotEnoughReplicasError struct{ InSync, Min int }

// Error implements error.
func (e *NotEnoughReplicasError) Error() string {
	return fmt.Sprintf("%d replicas are in sync and min.insync.replicas is %d: "+
		"try again when more are back", e.InSync, e.Min)
}

// Settings are what the topic's configuration says about a partition beyond
// its log. They may be replaced at any time.
type Settings struct {
	MinInSync int
	MaxLag    time.Duration // replica.lag.time.max.ms.
}

// Partition is one partition replica on this broker.
type Partition struct {
	topic string
	id    kafka.TopicIDPartition
	self  kafka.BrokerID
	log   *commitlog.Log

	// role is held for reading by appends, so that a change of leadership
	// waits for those under way and fences those to come.
	role        sync.RWMutex
	leading     bool
	deleted     bool
	leaderEpoch kafka.LeaderEpoch
	settings    Settings

	progress progress

	// highWatermark mirrors progress for readers that take no lock.
	highWatermark atomic.Int64

	waiters waiters
	traffic traffic
}

// progress is the leader's view of the replicas, behind a lock of its own
// because the committer reports to it while an append holds the log.
type progress struct {
	mu     sync.Mutex
	leader *isr.Leader // nil while not leading.
}

// Options describe a new Partition.
type Options struct {
	Topic    string
	ID       kafka.TopicIDPartition
	Self     kafka.BrokerID
	Settings Settings
}

// LogOpener opens the log of a partition with the given callbacks.
type LogOpener func(onDurable func(kafka.Offset), onFailed func(error)) (*commitlog.Log, error)

// New opens the partition's log. The partition leads nothing until BecomeLeader.
func New(o Options, open LogOpener) (*Partition, error) {
	p := &Partition{topic: o.Topic, id: o.ID, self: o.Self, settings: o.Settings}
	log, err := open(p.durable, p.failed)
	if err != nil {
		return nil, fmt.Errorf("open log of %s-%d: %w", o.Topic, o.ID.Partition, err)
	}
	p.log = log
	return p, nil
}

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.topic }

// ID returns the partition's identity in storage.
func (p *Partition) ID() kafka.TopicIDPartition { return p.id }

// Log returns the partition's log, for reading and for maintenance.
func (p *Partition) Log() *commitlog.Log { return p.log }

// HighWatermark returns the first offset that consumers may not read yet.
func (p *Partition) HighWatermark() kafka.Offset {
	return kafka.Offset(p.highWatermark.Load())
}

// LastStableOffset returns the first offset that a read_committed consumer may
// not read yet. Without transactions it is the high watermark.
func (p *Partition) LastStableOffset() kafka.Offset { return p.HighWatermark() }

// LeaderEpoch returns the epoch of the current leader.
func (p *Partition) LeaderEpoch() kafka.LeaderEpoch {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.leaderEpoch
}

// Leadership is what the metadata image says about a partition that this
// broker leads.
type Leadership struct {
	Replicas       []kafka.BrokerID
	ISR            []kafka.BrokerID
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch kafka.PartitionEpoch
}

// BecomeLeader takes the partition over under a new leader epoch, or takes in
// a change of its ISR under the same one.
func (p *Partition) BecomeLeader(l Leadership, now time.Time) error {
	p.role.Lock()
	moved, err := p.becomeLeaderLocked(l, now)
	p.role.Unlock()
	if moved {
		p.waiters.advance(p.HighWatermark())
	}
	return err
}

func (p *Partition) becomeLeaderLocked(l Leadership, now time.Time) (bool, error) {
	if p.deleted {
		return false, ErrDeleted
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.leading && l.LeaderEpoch == p.leaderEpoch {
		moved := p.progress.leader.Committed(l.ISR, l.PartitionEpoch)
		p.publishLocked()
		return moved, nil
	}
	if err := p.log.BeginEpoch(l.LeaderEpoch); err != nil {
		return false, fmt.Errorf("begin leader epoch %d of %s-%d: %w", l.LeaderEpoch, p.topic, p.id.Partition, err)
	}
	p.leading, p.leaderEpoch = true, l.LeaderEpoch
	p.progress.leader = isr.NewLeader(isr.Options{
		Self: p.self, Replicas: l.Replicas, ISR: l.ISR, PartitionEpoch: l.PartitionEpoch,
		HighWatermark: max(p.HighWatermark(), p.log.LogStartOffset()),
		LogEndOffset:  p.log.LogEndOffset(), SyncedEnd: p.log.ReportedEnd(),
		MaxLag: p.settings.MaxLag, Now: now,
	})
	p.publishLocked()
	return true, nil
}

// publishLocked mirrors the high watermark; progress.mu is held.
func (p *Partition) publishLocked() {
	p.highWatermark.Store(int64(p.progress.leader.HighWatermark()))
}

// Configure replaces the settings.
func (p *Partition) Configure(s Settings) {
	p.role.Lock()
	defer p.role.Unlock()
	p.settings = s
}

// Resign ends leadership and wakes everything that waits, so that it finds out.
// With deleted it is for good.
func (p *Partition) Resign(deleted bool) {
	p.role.Lock()
	p.leading = false
	p.deleted = p.deleted || deleted
	p.progress.mu.Lock()
	p.progress.leader = nil
	p.progress.mu.Unlock()
	p.role.Unlock()
	p.waiters.wakeAll()
}

// Leads returns nil if this broker leads the partition under the epoch the
// caller believes in; kafka.NoLeaderEpoch stands for any.
func (p *Partition) Leads(believed kafka.LeaderEpoch) error {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.leadsLocked(believed)
}

func (p *Partition) leadsLocked(believed kafka.LeaderEpoch) error {
	switch {
	case p.deleted:
		return ErrDeleted
	case believed != kafka.NoLeaderEpoch && believed < p.leaderEpoch:
		return &FencedEpochError{believed, p.leaderEpoch}
	case believed > p.leaderEpoch:
		return &UnknownEpochError{believed, p.leaderEpoch}
	case !p.leading:
		return ErrNotLeader
	}
	return nil
}

// Append appends validated batches as the leader. It returns once they are
// written; with AcksAll the caller acknowledges when the high watermark has
// passed LastOffset. The bytes are stamped in place and not kept.
func (p *Partition) Append(bs []record.Batch, acks Acks, now time.Time) (commitlog.AppendInfo, error) {
	return p.AppendUnder(kafka.NoLeaderEpoch, bs, acks, now)
}

// AppendUnder is Append for a caller that knows the log as it was under a leader
// epoch: under another, which may have another log, it fails.
func (p *Partition) AppendUnder(
	believed kafka.LeaderEpoch, bs []record.Batch, acks Acks, now time.Time,
) (commitlog.AppendInfo, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(believed); err != nil {
		return commitlog.AppendInfo{}, err
	}
	if acks == AcksAll && p.settings.MinInSync > 1 {
		if n := p.inSync(); n < p.settings.MinInSync {
			return commitlog.AppendInfo{}, &NotEnoughReplicasError{n, p.settings.MinInSync}
		}
	}
	info, err := p.log.AppendAsLeader(bs, p.leaderEpoch, now)
	if err != nil {
		return info, err
	}
	p.traffic.noteAppended(bs, info)
	if end := p.log.ReportedEnd(); end > p.HighWatermark() {
		p.durable(end) // The topic gave the sync up, or it is done already.
	}
	return info, nil
}

// EnoughInSync tells after an append whether acks=all still holds.
func (p *Partition) EnoughInSync() error {
	p.role.RLock()
	defer p.role.RUnlock()
	if n := p.inSync(); n < p.settings.MinInSync {
		return &NotEnoughReplicasError{n, p.settings.MinInSync}
	}
	return nil
}

func (p *Partition) inSync() int {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.progress.leader == nil {
		return 0
	}
	return p.progress.leader.InSync()
}

// durable is the log's report that everything below end is on disk, or as good
// as the topic asks for.
func (p *Partition) durable(end kafka.Offset) {
	p.progress.mu.Lock()
	moved := p.progress.leader != nil && p.progress.leader.Appended(p.log.LogEndOffset(), end)
	if moved {
		p.publishLocked()
	}
	p.progress.mu.Unlock()
	if moved {
		p.waiters.advance(p.HighWatermark())
	}
}

// failed is the log's report that its disk is no good any more: nothing that
// waits will be acknowledged.
func (p *Partition) failed(error) { p.Resign(false) }
