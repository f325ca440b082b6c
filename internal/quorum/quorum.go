package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Machine is what is replicated. All methods are called by the loop of Run,
// never concurrently. An error of any of them ends Run.
type Machine interface {
	// Apply changes the machine by one committed entry. It is called once per
	// entry in the order of index, again from the last snapshot after a
	// restart. The entry may be kept but not modified.
	Apply(index uint64, entry []byte) error
	// Snapshot returns the state after the last entry applied. The caller owns
	// the result.
	Snapshot() ([]byte, error)
	// Restore replaces the whole state by that of a snapshot, which is of after the
	// entry at index. The data may be kept but not modified.
	Restore(index uint64, data []byte) error
}

// Stager is what a Machine offers to let decisions share a sync. Without it,
// each entry is synced and applied before the next decision is made.
//
// The loop calls Stage as soon as an entry was decided: the decisions that
// follow must see its effect, and nobody else may, since it is not durable yet.
// Apply of the staged entries follows in the same order, unless Unstage says
// that this node stopped leading: then all that was staged and not applied is
// forgotten, and whatever Apply brings next stands for itself.
type Stager interface {
	Stage(entry []byte) error
	Unstage()
}

// Transport carries messages to other nodes.
type Transport interface {
	// Send must not block: it drops what it cannot queue, as Raft allows. The
	// messages may not be modified. The receiving side hands what arrives to
	// Receive. After a snapshot message was transferred to its end, or failed,
	// the transport calls ReportSnapshot.
	Send(messages []*raftpb.Message)
	// Greet tells all nodes that there may be that this one is here; their
	// transports call Greeted. It must not block either.
	Greet(fresh bool)
}

// Options says what to open. FS, Dir, NodeID and Machine are required; zero
// values of the others mean the defaults.
type Options struct {
	// FS and Dir are where the log is kept. The directory is made if need be.
	FS  vfs.FS
	Dir string
	// NodeID is this node.
	NodeID kafka.BrokerID
	// Voters are the nodes a new quorum begins with: the same list on each of
	// them, and the first election waits until each has heard from all. A
	// directory that holds a log already knows its voters. A node that is not
	// among them begins empty and asks to join as a learner, for which it needs a
	// Transport.
	Voters []kafka.BrokerID
	// Joined says that this node took part before: then it must not begin anew if
	// nothing is left of its log.
	Joined bool
	// Directory is the id of the data directory and Address where others reach
	// this node: what it is known by to them. A lone voter needs neither.
	Directory [16]byte
	Address   string
	// Machine is what is replicated.
	Machine Machine
	// Transport reaches the other nodes; a lone voter needs none.
	Transport Transport
	// Logger gets one line per change of leader, snapshot or repair.
	Logger *slog.Logger

	// OnLeader, if set, is called on the loop whenever its argument has changed.
	// It must not block, nor call a method that waits for the loop.
	OnLeader func(Leadership)
	// Hangs reports whether the disk is known to hang, from writes of others to it; nil
	// where nobody else writes to it. It must not block.
	Hangs func() bool

	// TickInterval is Raft's unit of time, 30 ms by default. A leader is
	// missed after ElectionTicks (20) to twice that, and shows itself every
	// HeartbeatTicks (3). A leader whose process died is replaced sooner, see
	// ReportDown.
	TickInterval   time.Duration
	ElectionTicks  int
	HeartbeatTicks int

	// SegmentBytes is when a new segment of the log is begun, 2 MiB by default.
	SegmentBytes int64
	// SnapshotEntries and SnapshotBytes say after how many entries (10,000) or
	// bytes of them (2 MiB, and never less than the last snapshot's size) a
	// snapshot is taken and the log before it deleted.
	SnapshotEntries uint64
	SnapshotBytes   int64
	// TrailingEntries stay in the log after a snapshot for followers that are
	// a little behind; 1,000 by default.
	TrailingEntries uint64
	// MaxEntryBytes limits one entry, 8 MiB by default.
	MaxEntryBytes int
	// MaxWaiting limits how many calls of Do, and how many messages, may wait
	// for the loop, and how many decisions may be on their way; 1,024 by
	// default. More callers wait in Do until there is room.
	MaxWaiting int
}

// The defaults of Options.
const (
	defaultTickInterval    = 30 * time.Millisecond
	defaultElectionTicks   = 20
	defaultHeartbeatTicks  = 3
	defaultSegmentBytes    = 2 << 20
	defaultSnapshotEntries = 10_000
	defaultSnapshotBytes   = 2 << 20
	defaultTrailingEntries = 1_000
	defaultMaxEntryBytes   = 8 << 20
	defaultMaxWaiting      = 1_024
)

func (o Options) withDefaults() Options {
	setDefault(&o.TickInterval, defaultTickInterval)
	setDefault(&o.ElectionTicks, defaultElectionTicks)
	setDefault(&o.HeartbeatTicks, defaultHeartbeatTicks)
	setDefault(&o.SegmentBytes, defaultSegmentBytes)
	setDefault(&o.SnapshotEntries, defaultSnapshotEntries)
	setDefault(&o.SnapshotBytes, defaultSnapshotBytes)
	setDefault(&o.TrailingEntries, defaultTrailingEntries)
	setDefault(&o.MaxEntryBytes, defaultMaxEntryBytes)
	setDefault(&o.MaxWaiting, defaultMaxWaiting)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// setDefault sets *v to value where it is zero.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Quorum is this node's part in the quorum. Fields below the line belong to
// the loop.
type Quorum struct {
	opt     Options
	waiting chan *proposal
	inbox   chan inbound
	ready   chan struct{}
	stopped chan struct{} // Closed when Run has returned.
	stopErr error         // Why; written before stopped is closed.
	started atomic.Bool
	closed  atomic.Bool
	status  atomic.Pointer[Status]
	members atomic.Pointer[members] // As of the last entry applied.

	sightings sightings

	// --- the loop's own ---

	node    *raft.RawNode
	log     *memoryLog
	wal     *wal
	machine Machine
	stager  Stager // Nil unless the machine is one.
	ticker  *time.Ticker

	restore      []byte            // The snapshot to begin with; nil for an empty machine.
	conf         *raftpb.ConfState // After the last entry applied.
	applied      entryID
	sinceEntries uint64 // Entries and bytes applied since the last snapshot.
	sinceBytes   int64
	snapshotID   entryID
	snapshotSize int64

	role  role
	led   time.Time  // When a leader last said something as such.
	shown Leadership // What OnLeader was told last.
	haste haste
	room  room
	ticks int
	// founders are the voters heard of that hold nothing, see gated.
	founders map[uint64]bool
	// wishes are the changes of members that somebody waits for; changing says
	// that one is in the log and not applied.
	wishes   []*wish
	changing bool
	noEnroll time.Time
	contacts map[kafka.BrokerID]contact
	// forgot says that this node lacks entries that it has acknowledged.
	forgot bool
	// resigning wait for this node to stop leading.
	resigning []chan error
	// decided are the calls of Do whose outcome hangs on entries on their way,
	// in the order of those entries.
	decided      []outcome
	unsavedBytes int // What the entries proposed in this round will take in the log.
}

// Open reads the log of a directory, repairs what a crash left behind, and
// makes what it found durable. Nothing runs before Run. A directory without a
// log begins a new quorum of opt.Voters.
//
// Typed errors: *VersionError for a format of another version, whose files stay
// untouched; *CorruptionError for damage that a crash does not explain.
func Open(opt Options) (*Quorum, error) {
	opt = opt.withDefaults()
	if opt.NodeID < 0 {
		return nil, fmt.Errorf("open quorum: node id %d is negative", opt.NodeID)
	}
	found, err := recoverDir(opt)
	if err != nil {
		return nil, fmt.Errorf("open quorum in %s: %w", opt.Dir, err)
	}
	q := &Quorum{
		opt:     opt,
		waiting: make(chan *proposal, opt.MaxWaiting),
		inbox:   make(chan inbound, opt.MaxWaiting),
		ready:   make(chan struct{}),
		stopped: make(chan struct{}),

		log:          found.log,
		wal:          found.wal,
		machine:      opt.Machine,
		restore:      found.snapshot.data,
		conf:         found.snapshot.conf,
		applied:      found.snapshot.id,
		snapshotID:   found.snapshot.id,
		snapshotSize: int64(len(found.snapshot.data)),
		founders:     map[uint64]bool{},
		contacts:     map[kafka.BrokerID]contact{},
		shown:        Leadership{Leader: kafka.NoBroker},
	}
	q.setMembers(found.snapshot.members)
	q.stager, _ = opt.Machine.(Stager)
	q.log.snapshot = q.currentSnapshot
	if !q.alone() && opt.Transport == nil {
		return nil, errors.Join(
			fmt.Errorf("open quorum in %s: the nodes %v vote, and this one has no way to the others: start it with "+
				"--cluster-listen", opt.Dir, brokerIDs(q.conf.GetVoters())),
			q.wal.close())
	}
	if q.node, err = raft.NewRawNode(q.raftConfig()); err != nil {
		return nil, errors.Join(fmt.Errorf("open quorum in %s: %w", opt.Dir, err), q.wal.close())
	}
	q.publishStatus()
	return q, nil
}

func (q *Quorum) raftConfig() *raft.Config {
	return &raft.Config{
		ID:              raftID(q.opt.NodeID),
		ElectionTick:    q.opt.ElectionTicks,
		HeartbeatTick:   q.opt.HeartbeatTicks,
		Storage:         q.log,
		Applied:         q.applied.index,
		MaxSizePerMsg:   1 << 20,
		MaxInflightMsgs: 256,
		CheckQuorum:     true,
		PreVote:         true,
		// A decision is made on the leader with everything applied; an entry
		// that was forwarded would have been decided on old state.
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{q.opt.Logger},
	}
}

// Close releases the log's files. It is called after Run has returned, or in
// its place, and may be called again.
func (q *Quorum) Close() error {
	if q.closed.Swap(true) {
		return nil
	}
	if q.started.Load() {
		<-q.stopped
	}
	err := q.wal.noteStop()
	if errors.Is(err, errStopSkipped) {
		q.opt.Logger.Warn("the end of the quorum log is not noted", "error", err)
		err = nil
	}
	return errors.Join(err, q.wal.close())
}

// Ready is closed once a leader is known and an entry of its term has been
// applied here, so that everything committed before it has been too.
func (q *Quorum) Ready() <-chan struct{} { return q.ready }

// Leadership is who leads, as this node knows it.
type Leadership struct {
	// Leader is kafka.NoBroker while none is known.
	Leader kafka.BrokerID
	Term   uint64
	// Active says that this node leads and has applied all that came before, so
	// that it decides.
	Active bool
}

// Status describes this node as of the last round of the loop.
type Status struct {
	NodeID kafka.BrokerID
	Leadership
	// Invariant: SnapshotIndex <= AppliedIndex <= CommitIndex <= LastIndex.
	SnapshotIndex uint64
	AppliedIndex  uint64
	CommitIndex   uint64
	LastIndex     uint64
	// FirstIndex is the oldest entry a follower could be sent; older ones come
	// as a snapshot.
	FirstIndex uint64
	// Voters and Learners are sorted; not to be modified.
	Voters   []kafka.BrokerID
	Learners []kafka.BrokerID
}

// Status returns this node's view of the quorum.
func (q *Quorum) Status() Status { return *q.status.Load() }

func (q *Quorum) publishStatus() {
	basic := q.node.BasicStatus()
	old := q.status.Load()
	s := Status{
		NodeID:        q.opt.NodeID,
		Leadership:    Leadership{brokerID(basic.Lead), basic.GetTerm(), q.active()},
		SnapshotIndex: q.snapshotID.index,
		AppliedIndex:  q.applied.index,
		CommitIndex:   basic.GetCommit(),
		LastIndex:     q.log.last().index,
		FirstIndex:    q.log.base.index + 1,
	}
	if old != nil && old.AppliedIndex == s.AppliedIndex {
		s.Voters, s.Learners = old.Voters, old.Learners
	} else {
		s.Voters, s.Learners = brokerIDs(q.conf.GetVoters()), brokerIDs(q.conf.GetLearners())
	}
	q.status.Store(&s)
}

// active reports whether this node leads and has applied all that came before.
func (q *Quorum) active() bool { return q.role.leading && q.applied.term == q.role.term }

// alone reports whether no other node takes part.
func (q *Quorum) alone() bool {
	self := raftID(q.opt.NodeID)
	other := func(id uint64) bool { return id != self }
	return !slices.ContainsFunc(q.conf.GetVoters(), other) &&
		!slices.ContainsFunc(q.conf.GetVotersOutgoing(), other) &&
		!slices.ContainsFunc(q.conf.GetLearners(), other) &&
		!slices.ContainsFunc(q.conf.GetLearnersNext(), other)
}

// raftID is a node's id in the library, where 0 stands for "nobody" while
// Kafka allows a broker 0.
func raftID(id kafka.BrokerID) uint64 { return uint64(id) + 1 }

// brokerID is the inverse of raftID; nobody becomes kafka.NoBroker.
func brokerID(id uint64) kafka.BrokerID {
	if id == raft.None {
		return kafka.NoBroker
	}
	return kafka.BrokerID(id - 1)
}

func brokerIDs(ids []uint64) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = brokerID(id)
	}
	slices.Sort(out)
	return out
}
