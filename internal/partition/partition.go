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
//	the high watermark of one replica never falls, but when a leader elected
//	unclean lacks what lies below it, which is logged
//	a record is appended only under the leader epoch that the image names
//	a follower's log, up to its end, is a prefix of the log of the leader whose
//	epoch it follows, from the moment that leader answered its first fetch
//	what a follower reports as its end is on its disk
//	an acknowledged record is on the disk of every member of the ISR
//
// A replica is in one of three roles, and every change of the leader epoch ends
// the wait of whoever waits on it, so that nothing is acknowledged or served
// under an epoch on the word of another:
//
//	          image names this broker
//	idle  --------------------------->  leading
//	 |  \                               ^   |
//	 |   image names another broker     |   | image names another, or none
//	 |                    \             |   v
//	 |                     +-------->  following
//	 +--- topic deleted, replica moved away: deleted, for good
//
// What must not happen, and what prevents it:
//
//   - A follower cuts its log by its high watermark and is elected before it has
//     caught up: acknowledged records are gone (KIP-101). It cuts where the
//     leader's epoch history and its own part, and nowhere else (KIP-279): each
//     fetch carries the epoch of the follower's last record, and the leader
//     answers with where the two logs part instead of with records (KIP-595).
//   - A leader that nobody follows any more goes on acknowledging (a zombie). Its
//     followers' fetches carry a newer epoch and are refused, or go elsewhere;
//     its high watermark stands still, since each member of its ISR holds it.
//   - A waiting producer sees the high watermark of a later epoch pass its
//     offset, where another record is now. Whoever waits checks the epoch that
//     the append was made under, after it has read the high watermark.
//   - A follower reports what a power loss takes away again. It fetches only
//     from where its log is synced.
//   - A fetch that was on its way while its sender restarted, or lost its disk,
//     counts: it carries the broker epoch and is refused (KIP-903).
//   - A follower too far behind joins the ISR: see package isr.
//   - A reader is shown less than the leader before had shown: until the high
//     watermark has reached what the log had when the epoch began, the latest
//     offset is not told (Settled; KIP-207).
//   - A leader that was replaced without its knowledge tells what was the newest before
//     that. One that can't hear the controller asks its replicas first (Confirm).
//
// Lock order: role (read or write) -> the log's own lock; progress is taken
// alone or under role, never around the log. Waiters are woken without a lock.
//
// Deliberately absent: fetching (package fetcher), asking the controller
// (package insync), and any knowledge of the protocol's bytes.
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
	// ErrNotFollower refuses what a follower does under a leader that it does not
	// follow any more.
	ErrNotFollower = errors.New("this broker does not follow that leader of the partition any more")
	// ErrNotYet says that records are not acknowledged yet.
	ErrNotYet = errors.New("the records are not on every in-sync replica yet")
	// ErrNotSettled refuses to tell the latest offset under a leader that does not
	// know yet how far its predecessor's readers got.
	ErrNotSettled = errors.New("the new leader has not heard from its in-sync replicas yet: try again")
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
type NotEnoughReplicasError struct {
	InSync, Min int
	// Appended says that the records were written, and that replicas were lost
	// meanwhile: they may be there or not after a failure.
	Appended bool
}

// Error implements error.
func (e *NotEnoughReplicasError) Error() string {
	if e.Appended {
		return fmt.Sprintf("the records were written, but only %d replicas are in sync and min.insync.replicas is %d: "+
			"try again", e.InSync, e.Min)
	}
	return fmt.Sprintf("%d replicas are in sync and min.insync.replicas is %d: "+
		"try again when more are back", e.InSync, e.Min)
}

// Settings are what the topic's configuration says about a partition beyond
// its log. They may be replaced at any time.
type Settings struct {
	MinInSync int
	MaxLag    time.Duration // replica.lag.time.max.ms.
	// Whom the broker's throttles bind.
	LeaderThrottled, FollowerThrottled ThrottledReplicas
}

// Partition is one partition replica on this broker.
type Partition struct {
	topic     string
	id        kafka.TopicIDPartition
	self      kafka.BrokerID
	log       *commitlog.Log
	wants     func(*Partition)
	eligible  func(kafka.BrokerID, kafka.BrokerEpoch) bool
	alive     func(kafka.BrokerID) bool
	aside     aside
	throttles Throttles
	marks     Marks
	losing    func(p *Partition, from, to kafka.Offset)
	shared    atomic.Bool // Others have the partition too.

	// role is held for reading by appends, so that a change of leadership
	// waits for those under way and fences those to come.
	role        sync.RWMutex
	standing    standing
	deleted     bool
	leader      kafka.BrokerID
	leaderEpoch kafka.LeaderEpoch
	settings    Settings
	place       place // Of a follower.

	progress progress

	// highWatermark mirrors progress for readers that take no lock, and is all
	// there is of it on a follower. It is written under progress.mu.
	highWatermark atomic.Int64
	// broken says that the log failed: the replica plays no part any more. It takes
	// no lock to set, since the committer does, for which a truncation waits.
	broken atomic.Bool
	// behind is how many offsets below the leader's high watermark a follower's log ended
	// when it heard of it last.
	behind atomic.Int64
	// contact is when the leader that is followed was heard of; nil if never.
	contact atomic.Pointer[Contact]

	waiters  waiters // For the high watermark.
	stable   waiters // For the last stable offset.
	appended waiters // For the log's end: followers.
	synced   waiters // For the log's synced end: this broker's own fetcher.
	deleting waiters // For the low watermark: DeleteRecords.
	rounds   rounds  // Of confirmations of this leader.
	traffic  traffic
}

// standing is a replica's part in its partition.
type standing int8

const (
	idle standing = iota // Nobody has said yet, or the log failed.
	leading
	following
)

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
	// Wants is called, without a lock, when the leader has begun to want another
	// ISR (WantedISR); nil for nobody. It must not block.
	Wants func(*Partition)
	// Eligible reports whether a broker may become a member of an ISR: it is not
	// fenced, and this is its registration. nil for any.
	Eligible func(kafka.BrokerID, kafka.BrokerEpoch) bool
	// Alive reports whether a broker is not fenced; nil for any.
	Alive func(kafka.BrokerID) bool
	// Troubled is called, without a lock of the partition's, when its log was found
	// damaged: see Mender. It must not block. nil for nobody.
	Troubled func(*Partition)
	// Marks keep the high watermark over a restart; nil for none.
	Marks Marks
	// Losing is called before a follower's log is cut below its high watermark: what lies
	// between may have been acknowledged. It may touch the partition's log alone. nil for
	// nobody.
	Losing func(p *Partition, from, to kafka.Offset)
	// Throttles are the broker's.
	Throttles Throttles
}

// Callbacks are what a log tells the partition.
type Callbacks struct {
	OnDurable func(kafka.Offset)
	OnFailed  func(error)
	OnDamaged func(error)
}

// LogOpener opens the log of a partition with the given callbacks.
type LogOpener func(Callbacks) (*commitlog.Log, error)

// New opens the partition's log. The partition leads nothing until BecomeLeader.
func New(o Options, open LogOpener) (*Partition, error) {
	p := &Partition{
		topic: o.Topic, id: o.ID, self: o.Self, settings: o.Settings, wants: o.Wants, eligible: o.Eligible,
		alive: o.Alive, marks: o.Marks, losing: o.Losing, throttles: o.Throttles, aside: aside{troubled: o.Troubled},
		leader: kafka.NoBroker, leaderEpoch: kafka.NoLeaderEpoch,
	}
	p.aside.fetched.Store(int32(kafka.NoLeaderEpoch))
	log, err := open(Callbacks{OnDurable: p.durable, OnFailed: p.failed, OnDamaged: p.damaged})
	if err != nil {
		return nil, fmt.Errorf("open log of %s-%d: %w", o.Topic, o.ID.Partition, err)
	}
	p.log = log
	p.recallHighWatermark()
	p.examine()
	return p, nil
}

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.topic }

// ID returns the partition's identity in storage.
func (p *Partition) ID() kafka.TopicIDPartition { return p.id }

// Log returns the partition's log, for reading and for maintenance.
func (p *Partition) Log() *commitlog.Log { return p.log }

// Shared reports whether other brokers have replicas of the partition too.
func (p *Partition) Shared() bool { return p.shared.Load() }

// HighWatermark returns the first offset that consumers may not read yet.
func (p *Partition) HighWatermark() kafka.Offset {
	return kafka.Offset(p.highWatermark.Load())
}

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
	Eligible       []kafka.BrokerID // KIP-966.
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch kafka.PartitionEpoch
}

// BecomeLeader takes the partition over under a new leader epoch, or takes in
// a change of its ISR or replicas under the same one.
//
// A replica whose log failed takes it over too, and does nothing with it but resign
// (StepAside): to all others it is the leader, and under the epoch before it would
// not be heard.
func (p *Partition) BecomeLeader(l Leadership, now time.Time) error {
	p.role.Lock()
	fresh, moved, err := p.becomeLeaderLocked(l, now)
	p.role.Unlock()
	switch {
	case fresh:
		p.risen()
		p.wakeAll()
	case err == nil:
		p.regrouped(moved)
	}
	return err
}

// regrouped is called without a lock when the ISR or the replicas may have changed
// under the same leader. A follower that waits for records may have been put out of the
// ISR: only its fetches bring it in again.
func (p *Partition) regrouped(moved bool) {
	if moved {
		p.risen()
	}
	p.appended.wakeAll()
	p.rounds.advance()
}

func (p *Partition) becomeLeaderLocked(l Leadership, now time.Time) (fresh, moved bool, err error) {
	switch {
	case p.deleted:
		return false, false, ErrDeleted
	case l.LeaderEpoch < p.leaderEpoch:
		return false, false, &FencedEpochError{l.LeaderEpoch, p.leaderEpoch}
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.shared.Store(len(l.Replicas) > 1)
	if p.standing == leading && l.LeaderEpoch == p.leaderEpoch {
		moved = p.progress.leader.Learned(isr.Decision{
			Replicas: l.Replicas, ISR: l.ISR, Eligible: l.Eligible, PartitionEpoch: l.PartitionEpoch,
		})
		p.publishLocked()
		return false, moved, nil
	}
	if err := p.log.BeginEpoch(l.LeaderEpoch); err != nil && !p.broken.Load() {
		return false, false, fmt.Errorf("begin leader epoch %d of %s-%d: %w", l.LeaderEpoch, p.topic, p.id.Partition, err)
	}
	p.standing, p.leader, p.leaderEpoch = leading, p.self, l.LeaderEpoch
	p.contact.Store(nil)
	p.progress.leader = isr.NewLeader(isr.Options{
		Self: p.self, Replicas: l.Replicas, ISR: l.ISR, Eligible: l.Eligible, MinInSync: p.settings.MinInSync,
		PartitionEpoch: l.PartitionEpoch,
		HighWatermark:  max(p.HighWatermark(), p.log.LogStartOffset()),
		LogEndOffset:   p.log.LogEndOffset(), SyncedEnd: p.log.ReportedEnd(),
		MaxLag: p.settings.MaxLag, Now: now,
	})
	p.publishLocked()
	return true, true, nil
}

// publishLocked mirrors the high watermark and the rounds; progress.mu is held.
func (p *Partition) publishLocked() {
	p.highWatermark.Store(int64(p.progress.leader.HighWatermark()))
	p.rounds.publish(p.progress.leader)
}

// Configure replaces the settings.
func (p *Partition) Configure(s Settings) {
	if p.configure(s) {
		p.waiters.advance(p.HighWatermark())
	}
}

func (p *Partition) configure(s Settings) (moved bool) {
	p.role.Lock()
	defer p.role.Unlock()
	p.settings = s
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.progress.leader != nil {
		p.progress.leader.SetMaxLag(s.MaxLag)
		moved = p.progress.leader.SetMinInSync(s.MinInSync)
		p.publishLocked()
	}
	return moved
}

// Resign ends leadership, or following, and wakes everything that waits, so that
// it finds out. With deleted it is for good.
func (p *Partition) Resign(deleted bool) {
	p.role.Lock()
	p.standing, p.leader = idle, kafka.NoBroker
	p.deleted = p.deleted || deleted
	p.leadNoMoreLocked()
	p.role.Unlock()
	p.wakeAll()
}

// leadNoMoreLocked forgets what only a leader knows.
func (p *Partition) leadNoMoreLocked() {
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	p.progress.leader = nil
	p.contact.Store(nil)
}

// wakeAll wakes everything that waits.
func (p *Partition) wakeAll() {
	p.waiters.wakeAll()
	p.stable.wakeAll()
	p.appended.wakeAll()
	p.synced.wakeAll()
	p.deleting.wakeAll()
	p.rounds.waiting.wakeAll()
}

// hasLeadership reports whether the replica was made the leader under an epoch, even if it
// can't lead because its log failed.
func (p *Partition) hasLeadership(epoch kafka.LeaderEpoch) bool {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.standing == leading && p.leaderEpoch == epoch
}

// Leads returns nil if this broker leads the partition under the epoch the
// caller believes in; kafka.NoLeaderEpoch stands for any.
func (p *Partition) Leads(believed kafka.LeaderEpoch) error {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.leadsLocked(believed)
}

func (p *Partition) leadsLocked(believed kafka.LeaderEpoch) error {
	if err := p.fencedLocked(believed); err != nil {
		return err
	}
	if p.standing != leading || p.broken.Load() {
		return ErrNotLeader
	}
	return nil
}

// fencedLocked refuses what was asked under another leader epoch.
func (p *Partition) fencedLocked(believed kafka.LeaderEpoch) error {
	switch {
	case p.deleted:
		return ErrDeleted
	case believed != kafka.NoLeaderEpoch && believed < p.leaderEpoch:
		return &FencedEpochError{believed, p.leaderEpoch}
	case believed > p.leaderEpoch:
		return &UnknownEpochError{believed, p.leaderEpoch}
	}
	return nil
}

// Settled returns nil if this broker leads the partition and its high watermark
// is no lower than what any leader before has told.
func (p *Partition) Settled() error {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	switch {
	case p.standing != leading || p.progress.leader == nil:
		return ErrNotLeader
	case !p.progress.leader.Settled():
		return ErrNotSettled
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
	return p.append(believed, bs, acks, commitlog.Verification{}, now)
}

func (p *Partition) append(
	believed kafka.LeaderEpoch, bs []record.Batch, acks Acks, v commitlog.Verification, now time.Time,
) (commitlog.AppendInfo, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(believed); err != nil {
		return commitlog.AppendInfo{}, err
	}
	if err := p.protectedLocked(acks); err != nil {
		return p.comesAgainLocked(bs, err, now)
	}
	info, err := p.log.AppendVerified(bs, p.leaderEpoch, v, now)
	if err != nil {
		return info, err
	}
	info.LeaderEpoch = p.leaderEpoch
	p.traffic.noteAppended(bs, info)
	p.appendedLocked()
	return info, nil
}

// comesAgainLocked answers what is refused unless it was appended before: that nothing was
// appended would be untrue of it, and its producer could go on as if it were not there, and
// write it twice.
func (p *Partition) comesAgainLocked(bs []record.Batch, refused error, now time.Time) (commitlog.AppendInfo, error) {
	info, there := p.log.Appended(bs, now)
	if !there {
		return commitlog.AppendInfo{}, refused
	}
	info.LeaderEpoch = p.leaderEpoch
	return info, nil
}

// appendableLocked tells why nothing may be appended with such acks, if so.
func (p *Partition) appendableLocked(believed kafka.LeaderEpoch, acks Acks) error {
	if err := p.leadsLocked(believed); err != nil {
		return err
	}
	return p.protectedLocked(acks)
}

// protectedLocked tells whether there are enough replicas in sync for such acks.
func (p *Partition) protectedLocked(acks Acks) error {
	if acks == AcksAll && p.settings.MinInSync > 1 {
		if n := p.inSync(); n < p.settings.MinInSync {
			return &NotEnoughReplicasError{InSync: n, Min: p.settings.MinInSync}
		}
	}
	return nil
}

// appendedLocked tells who waits that the leader's log has grown.
func (p *Partition) appendedLocked() {
	p.appended.advance(p.log.LogEndOffset())
	if end := p.log.ReportedEnd(); end > p.HighWatermark() {
		p.durable(end) // The topic gave the sync up, or it is done already.
	}
}

// EnoughInSync tells after an append whether acks=all still holds.
func (p *Partition) EnoughInSync() error {
	p.role.RLock()
	defer p.role.RUnlock()
	if p.settings.MinInSync <= 1 {
		return nil // The leader itself.
	}
	if n := p.inSync(); n < p.settings.MinInSync {
		return &NotEnoughReplicasError{InSync: n, Min: p.settings.MinInSync, Appended: true}
	}
	return nil
}

// Acknowledged tells whether what was appended under a leader epoch up to end is
// as safe as acks=all promises: nil if so, ErrNotYet if it may become so.
func (p *Partition) Acknowledged(under kafka.LeaderEpoch, end kafka.Offset) error {
	// First the high watermark, then the epoch: leadership under one epoch is not
	// interrupted, so what was read was of that epoch if it still lasts.
	reached := p.HighWatermark() >= end
	if err := p.Leads(under); err != nil {
		return err
	}
	if !reached {
		return ErrNotYet
	}
	return p.EnoughInSync()
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
		p.risen()
	}
	p.synced.advance(p.log.ReportedEnd())
}

// failed is the log's report that its disk is no good any more: nothing that
// waits will be acknowledged.
func (p *Partition) failed(error) {
	p.broken.Store(true)
	p.wakeAll()
	if p.aside.troubled != nil {
		p.aside.troubled(p)
	}
}
