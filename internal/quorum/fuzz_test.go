package quorum

import (
	"encoding/binary"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// appendMessages is a history of messages as FuzzReceive reads it.
func appendMessages(f *testing.F, messages ...*raftpb.Message) []byte {
	var out []byte
	for i, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		out = append(binary.AppendUvarint(append(out, byte(i)), uint64(len(b))), b...)
	}
	return out
}

// FuzzReceive has a voter hear messages that a member may send: it does not panic,
// does not fail, and commits nothing that it does not hold.
func FuzzReceive(f *testing.F) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}, AutoLeave: new(false)}
	message := func(kind raftpb.MessageType, term, index, logTerm, commit uint64, entries ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: new(kind), Term: new(term), Index: new(index), LogTerm: new(logTerm), Commit: new(commit), Entries: entries,
		}
	}
	f.Add(false, appendMessages(f,
		message(raftpb.MsgApp, 2, 1, 1, 1, entry(2, 2, ""), entry(3, 2, "x")),
		message(raftpb.MsgHeartbeat, 2, 0, 0, 3),
		message(raftpb.MsgPreVote, 4, 3, 2, 0), message(raftpb.MsgVote, 4, 3, 2, 0),
		message(raftpb.MsgTimeoutNow, 4, 0, 0, 0),
	))
	f.Add(true, appendMessages(f,
		message(raftpb.MsgAppResp, 2, 2, 0, 0), message(raftpb.MsgHeartbeatResp, 2, 0, 0, 2),
		message(raftpb.MsgTransferLeader, 2, 0, 0, 0), message(raftpb.MsgReadIndex, 2, 0, 0, 0, entry(0, 0, "ctx")),
	))
	snap := message(raftpb.MsgSnap, 3, 0, 0, 0)
	snap.Snapshot = &raftpb.Snapshot{
		Data:     append(make([]byte, 4), "state"...),
		Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(9)), Term: new(uint64(3)), ConfState: conf},
	}
	f.Add(false, appendMessages(f, snap, message(raftpb.MsgApp, 3, 9, 3, 10, entry(10, 3, "y"))))
	f.Fuzz(func(t *testing.T, leading bool, data []byte) {
		b := turnByHand(t, 0, 1, 2)
		if leading {
			b.becomeLeader()
		}
		for range 16 {
			if len(data) == 0 {
				return
			}
			from := kafka.BrokerID(data[0] % 2 * 2)
			size, n := binary.Uvarint(data[1:])
			if n <= 0 || size > uint64(len(data)-1-n) {
				return
			}
			m := &raftpb.Message{}
			if proto.Unmarshal(data[1+n:][:size], m) != nil {
				return
			}
			data = data[1+n+int(size):]
			m.From, m.To = new(raftID(from)), new(raftID(1))
			if err := b.Receive(t.Context(), Member{ID: from}, m); err != nil {
				continue
			}
			b.receive(<-b.inbox)
			if err := b.round(t.Context()); err != nil {
				t.Fatalf("%v ended it: %v", m, err)
			}
			if s := b.Status(); s.CommitIndex > s.LastIndex || s.AppliedIndex > s.CommitIndex {
				t.Fatalf("after %v: %+v", m, s)
			}
			b.sent = nil
		}
	})
}

// FuzzOpen opens a directory with arbitrary files whose checksums are right: no panic,
// and what was opened once is opened again.
func FuzzOpen(f *testing.F) {
	segment, _ := threeFrames()
	s := snapshot{id: bootstrapID(), conf: &raftpb.ConfState{Voters: []uint64{2}, AutoLeave: new(false)}}
	note := binary.LittleEndian.AppendUint64(appendPreamble(nil, stopMagic), 3)
	note = binary.LittleEndian.AppendUint32(note, checksum(note))
	f.Add(segment, s.appendTo(nil, 2), note)
	s.conf = &raftpb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{2}, Learners: []uint64{4}, AutoLeave: new(true)}
	f.Add(segment[:200], s.appendTo(nil, 2), []byte{})
	f.Fuzz(func(t *testing.T, segment, snapshot, note []byte) {
		sealSegment(segment)
		sealSnapshot(snapshot)
		disk := memfs.New()
		if err := disk.MkdirAll("quorum"); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{
			segmentName(1): segment, snapshotName(1): snapshot, stopName: note,
		} {
			if len(data) == 0 {
				continue
			}
			file, err := disk.Open("quorum/"+name, vfs.ReadWrite|vfs.Create)
			if err != nil {
				t.Fatal(err)
			}
			_, err = file.WriteAt(data, 0)
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{
			FS: disk, Dir: "quorum", NodeID: 1, Voters: []kafka.BrokerID{0, 1, 2}, Machine: nothing{},
			Transport: &witness{t: t, disk: memfs.New()},
		}
		for try := range 2 {
			q, err := Open(o)
			if err != nil && try > 0 {
				t.Fatalf("opened once, and then: %v", err)
			}
			if err != nil {
				return
			}
			if err := q.wal.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// sealSnapshot is sealSegment for a snapshot.
func sealSnapshot(data []byte) {
	if len(data) < snapshotHeaderBytes+4 {
		return
	}
	copy(data, appendPreambleOf(nil, snapshotMagic, 1+uint32(data[8]&1)))
	binary.LittleEndian.PutUint32(data[52:], checksum(data[:52]))
	end := len(data) - 4
	binary.LittleEndian.PutUint32(data[end:], checksum(data[snapshotHeaderBytes:end]))
}
