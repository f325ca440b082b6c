package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/wire"
)

// Quorum is what Raft carries messages for; *quorum.Quorum is one.
type Quorum interface {
	Receive(ctx context.Context, from quorum.Member, m *raftpb.Message) error
	Greeted(ctx context.Context, from quorum.Member, fresh bool) error
	ReportUnreachable(ctx context.Context, node kafka.BrokerID) error
	ReportSnapshot(ctx context.Context, node kafka.BrokerID, ok bool) error
	ReportDown(ctx context.Context, node kafka.BrokerID) error
	Member(node kafka.BrokerID) (quorum.Member, bool)
	Status() quorum.Status
}

// RaftOptions make a Raft.
type RaftOptions struct {
	// Self is this node, its data directory, and the address of its cluster
	// listener as the others reach it.
	Self quorum.Member
	// ClusterID is the cluster that the data directory belongs to; "" for one that
	// belongs to none yet.
	ClusterID string
	// Voters are addresses that the node was started with. Those that the quorum
	// knows of its members, and that a node itself tells, come first.
	Voters map[kafka.BrokerID]string
	// Conn are the options of the connections.
	Conn Options
	// MaxQueued and MaxQueuedBytes limit what waits for one node, 1,024 messages
	// and 16 MiB by default. What comes on top is dropped, as Raft allows.
	MaxQueued      int
	MaxQueuedBytes int
	// MaxSnapshotBytes is the largest snapshot that is sent, 64 MiB by default; the
	// other side's wire.Limits.MaxRequestBytes must leave room for it.
	MaxSnapshotBytes int
	// OnDown, if set, is told that a node's process is gone: its host refuses a dial,
	// or it closed a connection and is not there again at once. It must not block.
	OnDown func(id kafka.BrokerID, err error)
	// OnTwin, if set, is told each time that another node refuses this one because it
	// hears of it elsewhere too, see quorum.TwinError. It must not block.
	OnTwin func(err error)
}

// The defaults of RaftOptions.
const (
	defaultMaxQueued        = 1_024
	defaultMaxQueuedBytes   = 16 << 20
	defaultMaxSnapshotBytes = 64 << 20
)

// Raft carries the messages of a quorum between its nodes. It implements
// quorum.Transport; API is its receiving side.
type Raft struct {
	opt RaftOptions
	log *slog.Logger
	// fresh has a token when there are outbounds that do not run yet.
	fresh chan struct{}

	mu        sync.Mutex
	quorum    Quorum
	clusterID string
	outbounds map[kafka.BrokerID]*outbound
	waiting   []*outbound // Those that do not run yet.
	// heard are the addresses that nodes told of themselves.
	heard map[kafka.BrokerID]string
	// misses counts in vain at how many of its places a node was looked for, see Address.
	misses map[kafka.BrokerID]int
	// own counts the greetings of this node that arrived here, see CheckSelf.
	own uint64
	// refused are those whose messages were refused, so that one line says so.
	refused map[refusal]bool
}

// refusal is what a line of the log says once.
type refusal struct {
	from   kafka.BrokerID
	reason string
}

// maxRefusals bounds how many different refusals are remembered.
const maxRefusals = 256

// NewRaft returns a transport without a quorum; see Attach.
func NewRaft(o RaftOptions) *Raft {
	o.Conn = o.Conn.withDefaults()
	if o.MaxQueued <= 0 {
		o.MaxQueued = defaultMaxQueued
	}
	if o.MaxQueuedBytes <= 0 {
		o.MaxQueuedBytes = defaultMaxQueuedBytes
	}
	if o.MaxSnapshotBytes <= 0 {
		o.MaxSnapshotBytes = defaultMaxSnapshotBytes
	}
	return &Raft{
		opt: o, log: o.Conn.Logger, clusterID: o.ClusterID, fresh: make(chan struct{}, 1),
		outbounds: map[kafka.BrokerID]*outbound{}, heard: map[kafka.BrokerID]string{},
		misses: map[kafka.BrokerID]int{}, refused: map[refusal]bool{},
	}
}

// Attach sets the quorum that messages are for. Until then none is taken.
func (r *Raft) Attach(q Quorum) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quorum = q
}

// SetClusterID says which cluster this node belongs to, once that is known.
func (r *Raft) SetClusterID(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clusterID = id
}

func (r *Raft) attached() (Quorum, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quorum, r.clusterID
}

// Run sends what is queued until ctx ends.
func (r *Raft) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-r.fresh:
		}
		r.mu.Lock()
		waiting := r.waiting
		r.waiting = nil
		r.mu.Unlock()
		for _, o := range waiting {
			group.Go(func() error { return o.run(ctx) })
		}
	}
}

// Send implements quorum.Transport: it queues messages and never blocks.
func (r *Raft) Send(messages []*raftpb.Message) {
	for _, m := range messages {
		id := kafka.BrokerID(m.GetTo() - 1)
		if !r.to(id).enqueue(m) && m.GetType() == raftpb.MsgSnap {
			r.log.Warn("no room to queue a snapshot of the metadata", "broker", id)
		}
	}
}

// Greet implements quorum.Transport: it tells the voters, those this node was started with
// too, and all others that it has heard of, that it is here.
func (r *Raft) Greet(fresh bool) {
	ids := slices.Collect(maps.Keys(r.opt.Voters))
	r.mu.Lock()
	q := r.quorum
	ids = slices.AppendSeq(ids, maps.Keys(r.heard))
	r.mu.Unlock()
	if q != nil {
		ids = append(ids, q.Status().Voters...)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != r.opt.Self.ID {
			r.to(id).greet(fresh)
		}
	}
}

// to returns the queue to a node.
func (r *Raft) to(id kafka.BrokerID) *outbound {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.outbounds[id]
	if o == nil {
		o = newOutbound(r, id)
		r.outbounds[id] = o
		r.waiting = append(r.waiting, o)
		select {
		case r.fresh <- struct{}{}:
		default:
		}
	}
	return o
}

// Address returns where a node listens: where it says so itself, else where the quorum
// knows it, else where this node was told to look. Where it was looked for in vain, the
// next of these places is tried: nodes move, and any of the three may be what is left of
// an earlier time.
func (r *Raft) Address(id kafka.BrokerID) (string, bool) {
	r.mu.Lock()
	heard, q, misses := r.heard[id], r.quorum, r.misses[id]
	r.mu.Unlock()
	places := make([]string, 0, 3)
	add := func(address string) {
		own := address == r.opt.Self.Address && id != r.opt.Self.ID // Then it moved: here is no other.
		if address != "" && !own && !slices.Contains(places, address) {
			places = append(places, address)
		}
	}
	add(heard)
	if q != nil {
		m, _ := q.Member(id)
		add(m.Address)
	}
	add(r.opt.Voters[id])
	if len(places) == 0 {
		return "", false
	}
	return places[misses%len(places)], true
}

// miss notes that a node is not where it was looked for.
func (r *Raft) miss(id kafka.BrokerID, address string) {
	if now, _ := r.Address(id); now != address {
		return // It was heard of elsewhere meanwhile.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.misses[id]++
}

// Receive takes the body of a request with RaftKey to the quorum. It waits while the
// quorum has too much to do. A *RefusedError says that the messages are not for this
// node, or not from one that it knows.
func (r *Raft) Receive(ctx context.Context, body []byte) error {
	_, err := r.receive(ctx, body)
	return err
}

// receive is Receive, and tells whether it was a greeting, or is to be taken for one.
func (r *Raft) receive(ctx context.Context, body []byte) (greeting bool, err error) {
	var e *envelope
	decode := func() (err error) {
		e, err = decodeEnvelope(body)
		return err
	}
	if err := wire.Decode(decode); err != nil {
		return false, err
	}
	q, clusterID := r.attached()
	if q == nil {
		return false, errors.New("the quorum is not open yet")
	}
	if err := r.check(e, clusterID); err != nil {
		return r.overhear(ctx, q, e, clusterID), r.refuse(e.from.ID, err)
	}
	if e.from.ID == r.opt.Self.ID {
		r.mu.Lock()
		r.own++
		r.mu.Unlock()
		return false, nil // It asks who is at its address; the quorum need not know.
	}
	if e.greeting {
		if err := q.Greeted(ctx, e.from, e.fresh); err != nil {
			return true, r.refuse(e.from.ID, err)
		}
	}
	for _, m := range e.messages {
		if err := q.Receive(ctx, e.from, m); err != nil {
			return e.greeting, r.refuse(e.from.ID, err)
		}
	}
	if e.greeting || len(e.messages) > 0 { // Else nobody has looked at who it is.
		r.hear(e.from)
	}
	return e.greeting, nil
}

// check refuses what is not meant for this node.
func (r *Raft) check(e *envelope, clusterID string) error {
	self := r.opt.Self
	switch {
	case e.clusterID != "" && clusterID != "" && e.clusterID != clusterID:
		return &RefusedError{kafka.ErrInconsistentClusterID, fmt.Sprintf(
			"node %d belongs to cluster %s, node %d to cluster %s", e.from.ID, e.clusterID, self.ID, clusterID)}
	case e.to.ID != self.ID:
		return &RefusedError{kafka.ErrInvalidVoterKey, fmt.Sprintf(
			"a message to node %d arrived at node %d: an address belongs to another node", e.to.ID, self.ID)}
	case e.to.Directory != [16]byte{} && e.to.Directory != self.Directory:
		return &RefusedError{kafka.ErrInvalidVoterKey, fmt.Sprintf(
			"node %d is known with data directory %s and has %s: its data was replaced; "+
				"remove it from the quorum, then it can join again; if that was meant, run, at another broker: "+
				"strandline cluster remove-voter %d && strandline cluster add %d",
			self.ID, kafka.TopicID(e.to.Directory), kafka.TopicID(self.Directory), self.ID, self.ID)}
	}
	return nil
}

// overhear takes from what is meant for another node where the member is that sent it. It
// looks for the other one where that was before this node came here, and may itself be
// where nobody looks for it: so it passes for a greeting.
func (r *Raft) overhear(ctx context.Context, q Quorum, e *envelope, clusterID string) (greeting bool) {
	if e.to.ID == r.opt.Self.ID || e.from.ID == r.opt.Self.ID || clusterID == "" || e.clusterID != clusterID {
		return false
	}
	known, ok := q.Member(e.from.ID)
	if !ok || known.Directory != e.from.Directory || q.Greeted(ctx, e.from, false) != nil {
		return false
	}
	r.hear(e.from)
	return true
}

// refuse logs a refusal once and gives it the form of an answer.
func (r *Raft) refuse(from kafka.BrokerID, err error) error {
	var stranger *quorum.StrangerError
	var twin *quorum.TwinError
	switch {
	case errors.As(err, &stranger):
		err = &RefusedError{kafka.ErrInvalidVoterKey, stranger.Error()}
	case errors.As(err, &twin):
		err = &RefusedError{kafka.ErrDuplicateBrokerRegistration, twin.Error()}
	}
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	if r.firstTime(from, refused.Reason) {
		r.log.Warn("messages of Raft refused", "from", from, "error", err)
	}
	return err
}

// firstTime reports whether a line was not logged before.
func (r *Raft) firstTime(id kafka.BrokerID, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusal{id, reason}
	if r.refused[key] || len(r.refused) >= maxRefusals {
		return false
	}
	r.refused[key] = true
	return true
}

// hearOf notes where a node is said to be.
func (r *Raft) hearOf(id kafka.BrokerID, address string) {
	r.mu.Lock()
	before, known := r.heard[id]
	news := address != "" && address != before && (known || len(r.heard) < maxHeard)
	o := r.outbounds[id]
	if news {
		r.heard[id] = address
		delete(r.misses, id)
	}
	r.mu.Unlock()
	if news && o != nil {
		o.conn.Hasten()
	}
}

// hear notes that a node is there, and where. While another node leads, that one decides
// where a member is: it hears of each all the time.
func (r *Raft) hear(from quorum.Member) {
	r.mu.Lock()
	o, q := r.outbounds[from.ID], r.quorum
	r.mu.Unlock()
	if m, known := q.Member(from.ID); known && m.Address != "" && m.Address != from.Address {
		if leader := q.Status().Leader; leader != kafka.NoBroker && leader != r.opt.Self.ID && leader != from.ID {
			return
		}
	}
	r.hearOf(from.ID, from.Address)
	if o != nil && o.pausing.Swap(false) {
		o.conn.Hasten()
	}
}

// maxHeard bounds the addresses that are remembered.
const maxHeard = 10_000
