package quorum

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// witness is a transport that looks at what a power loss would leave at the moment
// a message leaves.
type witness struct {
	t    *testing.T
	disk *memfs.FS
	sent []sight
}

// sight is a message, and what was durable when it left.
type sight struct {
	m    *raftpb.Message
	last uint64
	hard hardState
}

func (*witness) Greet(bool) {}

func (w *witness) Send(messages []*raftpb.Message) {
	left := w.disk.CrashClone(1, 0)
	s, err := scanDir(left, "quorum")
	if err != nil {
		w.t.Fatal(err)
	}
	if len(s.segments) == 0 {
		s.segments = []scannedSegment{{}} // Another disk is written to.
	}
	log := &memoryLog{}
	hs, err := s.replay(log)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range messages {
		w.sent = append(w.sent, sight{m, log.last().index, hs})
	}
}

// take returns what was sent of a type.
func (w *witness) take(kind raftpb.MessageType) []sight {
	var out []sight
	for _, s := range w.sent {
		if s.m.GetType() == kind {
			out = append(out, s)
		}
	}
	w.sent = nil
	return out
}

// byHand is a voter among three whose loop the test turns.
type byHand struct {
	*Quorum
	t *testing.T
	*witness
}

func turnByHand(t *testing.T, voters ...kafka.BrokerID) *byHand {
	t.Helper()
	disk := memfs.New()
	return turnByHandOn(t, disk, disk, voters...)
}

// turnByHandOn is turnByHand on a disk other than what the witness looks at.
func turnByHandOn(t *testing.T, fs vfs.FS, disk *memfs.FS, voters ...kafka.BrokerID) *byHand {
	t.Helper()
	w := &witness{t: t, disk: disk}
	q, err := Open(Options{
		FS: fs, Dir: "quorum", NodeID: 1, Voters: voters, Machine: nothing{}, Transport: w,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &byHand{q, t, w}
	if err := q.start(); err != nil {
		t.Fatal(err)
	}
	b.turn()
	t.Cleanup(func() {
		if q.ticker != nil {
			q.ticker.Stop()
		}
		q.haste.stop()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *byHand) turn() {
	b.t.Helper()
	if err := b.round(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// hear takes a message from a node and turns the loop.
func (b *byHand) hear(from kafka.BrokerID, m *raftpb.Message) {
	b.t.Helper()
	m.From, m.To = new(raftID(from)), new(raftID(1))
	b.receive(inbound{message: m, from: Member{ID: from}})
	b.turn()
}

// becomeLeader plays the others' part in an election.
func (b *byHand) becomeLeader() {
	b.t.Helper()
	for _, other := range []kafka.BrokerID{0, 2} {
		b.receive(inbound{greeting: true, fresh: true, from: Member{ID: other}})
	}
	if err := b.takeTurn(); err != nil {
		b.t.Fatal(err)
	}
	b.turn()
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgPreVoteResp), Term: new(uint64(2))})
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgVoteResp), Term: new(uint64(2))})
	if !b.role.leading {
		b.t.Fatal("no leader")
	}
}

// A node promises nothing that a power loss could make it forget: that it holds an
// entry, or whom it voted for.
func TestPromisesAreSavedFirst(t *testing.T) {
	b := turnByHand(t, 0, 1, 2)
	entries := []*raftpb.Entry{entry(2, 2, ""), entry(3, 2, "x")}
	b.hear(0, &raftpb.Message{
		Type: new(raftpb.MsgApp), Term: new(uint64(2)), Index: new(uint64(1)), LogTerm: new(uint64(1)),
		Commit: new(uint64(1)), Entries: entries,
	})
	acks := b.take(raftpb.MsgAppResp)
	if len(acks) != 1 || acks[0].m.GetIndex() != 3 || acks[0].last != 3 || acks[0].hard.term != 2 {
		t.Errorf("acknowledged as %+v", acks)
	}
	// The leader is gone; another asks for the vote.
	b.receive(inbound{down: raftID(0)})
	b.hear(2, &raftpb.Message{
		Type: new(raftpb.MsgVote), Term: new(uint64(3)), Index: new(uint64(3)), LogTerm: new(uint64(2)),
	})
	votes := b.take(raftpb.MsgVoteResp)
	if len(votes) != 1 || votes[0].m.GetReject() || votes[0].hard.term != 3 || votes[0].hard.vote != raftID(2) {
		t.Errorf("voted as %+v", votes)
	}
}

// A candidate asks for votes and a leader sends entries before its own are durable,
// because it does not count its own until then.
func TestLeaderSendsBeforeItsOwnSync(t *testing.T) {
	b := turnByHand(t, 0, 1, 2)
	for _, other := range []kafka.BrokerID{0, 2} {
		b.receive(inbound{greeting: true, fresh: true, from: Member{ID: other}})
	}
	if err := b.takeTurn(); err != nil {
		t.Fatal(err)
	}
	b.turn()
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgPreVoteResp), Term: new(uint64(2))})
	asked := b.take(raftpb.MsgVote)
	if len(asked) != 2 || asked[0].hard.term != 1 || b.wal.hard != (hardState{2, raftID(1), 1}) {
		t.Fatalf("asked for votes as %+v", asked)
	}
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgVoteResp), Term: new(uint64(2))})
	if sent := b.take(raftpb.MsgApp); len(sent) != 2 || sent[0].last != 1 || b.log.last().index != 2 {
		t.Errorf("the first entry was sent as %+v", sent)
	}
	// Its own is durable now, and one other's answer makes a majority.
	if b.Status().CommitIndex != 1 {
		t.Errorf("committed alone: %+v", b.Status())
	}
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgAppResp), Term: new(uint64(2)), Index: new(uint64(2))})
	if s := b.Status(); s.CommitIndex != 2 || !s.Active {
		t.Errorf("with a majority: %+v", s)
	}
}

// What a healthy member can't say is not given to the library, which would take it
// for the end of the world.
func TestImplausibleMessagesAreDropped(t *testing.T) {
	b := turnByHand(t, 0, 1, 2)
	b.hear(0, &raftpb.Message{
		Type: new(raftpb.MsgSnap), Term: new(uint64(2)),
		Snapshot: &raftpb.Snapshot{Data: []byte("?"), Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(9)), Term: new(uint64(2)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		}},
	})
	b.becomeLeader()
	b.hear(0, &raftpb.Message{Type: new(raftpb.MsgAppResp), Term: new(uint64(2)), Index: new(uint64(99))})
	if s := b.Status(); s.CommitIndex != 1 || s.LastIndex != 2 {
		t.Errorf("committed what is not there: %+v", s)
	}
}

// A node on an older copy of its directory lacks entries that it has acknowledged, and that were committed because of
// it: it must not help to elect who lacks them too.
func TestWhoForgotEntriesVotesForNobody(t *testing.T) {
	b := turnByHand(t, 0, 1, 2)
	b.hear(0, &raftpb.Message{
		Type: new(raftpb.MsgApp), Term: new(uint64(2)), Index: new(uint64(1)), LogTerm: new(uint64(1)),
		Commit: new(uint64(3)), Entries: []*raftpb.Entry{entry(2, 2, ""), entry(3, 2, "x")},
	})
	ask := func(term uint64) int {
		b.receive(inbound{down: raftID(0)})
		b.hear(2, &raftpb.Message{
			Type: new(raftpb.MsgVote), Term: new(term), Index: new(uint64(9)), LogTerm: new(term - 1),
		})
		return len(b.take(raftpb.MsgVoteResp))
	}
	heartbeat := func(from kafka.BrokerID, term uint64) {
		b.hear(from, &raftpb.Message{Type: new(raftpb.MsgHeartbeat), Term: new(term), Commit: new(uint64(9))})
	}
	heartbeat(7, 2) // Whoever that is.
	if ask(3) != 1 {
		t.Fatal("no vote for one that holds a log")
	}
	heartbeat(0, 3)
	if s := b.Status(); s.CommitIndex != 3 {
		t.Errorf("committed what is not there: %+v", s)
	}
	if ask(4) != 0 {
		t.Error("a vote after entries were forgotten")
	}
	b.take(raftpb.MsgPreVote)
	b.hurry(raft.None)
	if err := b.takeTurn(); err != nil {
		t.Fatal(err)
	}
	b.turn()
	if asked := b.take(raftpb.MsgPreVote); len(asked) > 0 {
		t.Errorf("it asks for votes itself: %+v", asked)
	}
}

// Who joins has nothing yet: its vote would be for whoever asks.
func TestNobodyVotesBeforeItHasALog(t *testing.T) {
	b := turnByHand(t, 0, 2)
	b.hear(0, &raftpb.Message{
		Type: new(raftpb.MsgVote), Term: new(uint64(5)), Index: new(uint64(9)), LogTerm: new(uint64(4)),
	})
	if votes := b.take(raftpb.MsgVoteResp); len(votes) != 0 || b.wal.hard.vote != 0 {
		t.Errorf("voted as %+v", votes)
	}
	if b.ticker == nil {
		t.Error("who joins has no clock to say so by")
	}
}

// A founder votes when it has heard from all, or for who holds a log.
func TestFoundersVote(t *testing.T) {
	b := turnByHand(t, 0, 1, 2)
	ask := func(term, index, logTerm uint64) int {
		b.hear(0, &raftpb.Message{
			Type: new(raftpb.MsgVote), Term: new(term), Index: new(index), LogTerm: new(logTerm),
		})
		return len(b.take(raftpb.MsgVoteResp))
	}
	if ask(2, 1, 1) != 0 {
		t.Error("voted for a founder before all were heard of")
	}
	if ask(3, 7, 2) != 1 {
		t.Error("did not vote for one that holds a log")
	}
	b.receive(inbound{greeting: true, fresh: true, from: Member{ID: 0}})
	if ask(4, 1, 1) != 0 {
		t.Error("voted for a founder before all were heard of")
	}
	b.receive(inbound{greeting: true, fresh: true, from: Member{ID: 2}})
	if ask(5, 1, 1) != 1 {
		t.Error("did not vote when all were heard of")
	}
}

// slow is a disk whose syncs take as long as the test says.
type slow struct {
	vfs.FS
	sync time.Duration
}

type slowFile struct {
	vfs.File
	disk *slow
}

func (s *slow) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	f, err := s.FS.Open(name, flag)
	return slowFile{f, s}, err
}

func (f slowFile) Sync() error {
	<-time.After(f.disk.sync)
	return f.File.Sync()
}

// A leader that waits for its disk shows itself to the others, but not for ever: then, or
// as soon as the disk is known to hang, it has another lead.
func TestSlowSyncKeepsTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slow{FS: memfs.New()}
		b := turnByHandOn(t, disk, memfs.New(), 0, 1, 2)
		b.becomeLeader()
		b.hear(0, &raftpb.Message{Type: new(raftpb.MsgAppResp), Term: new(uint64(2)), Index: new(uint64(2))})
		b.turn()
		b.sent = nil
		var told []Leadership
		b.opt.OnLeader = func(l Leadership) { told = append(told, l) }
		disk.sync = time.Minute
		start := time.Now()
		if err := b.propose([]byte("x")); err != nil {
			t.Fatal(err)
		}
		b.turn()
		if time.Since(start) != time.Minute {
			t.Errorf("the sync took %s", time.Since(start))
		}
		look := func(when string, most int) {
			t.Helper()
			var beats, asked []*raftpb.Message
			for _, s := range b.sent {
				switch s.m.GetType() {
				case raftpb.MsgHeartbeat:
					beats = append(beats, s.m)
				case raftpb.MsgTimeoutNow:
					asked = append(asked, s.m)
				}
				if s.m.GetTerm() != 2 || s.m.GetTo() == raftID(2) && s.m.GetCommit() != 0 {
					t.Errorf("%s: sent %+v", when, s.m)
				}
			}
			if len(beats) != most {
				t.Errorf("%s: %d heartbeats, want %d", when, len(beats), most)
			}
			if len(asked) != 1 || asked[0].GetTo() != raftID(0) {
				t.Errorf("%s: asked %+v to lead", when, asked)
			}
			want := []Leadership{{Leader: 0, Term: 2}, {Leader: 1, Term: 2, Active: true}}
			if !slices.Equal(told, want) { // The disk has gone on in the end.
				t.Errorf("%s: told %+v, want %+v", when, told, want)
			}
			b.sent, told = nil, nil
		}
		look("after a minute", 2*(maxKeptAlive*b.opt.ElectionTicks/b.opt.HeartbeatTicks-1))
		known := start.Add(time.Minute + 200*time.Millisecond)
		b.opt.Hangs = func() bool { return time.Now().After(known) }
		if err := b.propose([]byte("y")); err != nil {
			t.Fatal(err)
		}
		b.turn()
		look("a disk that is known to hang", 2*2)
		disk.sync = 0
	})
}
