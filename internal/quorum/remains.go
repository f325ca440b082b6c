package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// When a majority of the voters is lost for good, with their disks, nothing that keeps
// Raft's promises decides anything again: what the lost ones had agreed on may be known
// to nobody. Somebody may decide to go on with what one node has, and with it alone.
//
// All others that are left must follow that node from then on, whatever they have. So its
// log begins anew with a snapshot that lies farther on, in index and term, than the lost
// voters can have come: who is sent it drops its own log for it, as any follower does
// that is far behind, and no leader of an earlier term is heard any more.
const (
	remainsIndexGap = 1 << 32
	remainsTermGap  = 1000
)

// Remains is what one node has of a quorum.
type Remains struct {
	NodeID kafka.BrokerID
	// Voters are those that the last entry leaves, sorted.
	Voters []kafka.BrokerID
	// Term and LastIndex are those of the last entry: of several nodes the one where they
	// are greatest, the term first, has most.
	Term, LastIndex uint64
}

// Survey reads what a directory has, and brings the machine to its last entry, be that
// known to be committed or not. As Inspect it changes nothing on disk.
func Survey(fsys vfs.FS, dir string, m Machine) (Remains, error) {
	s, err := scanDir(fsys, dir)
	if err == nil && len(s.snapshots) == 0 {
		err = fmt.Errorf("no log: %w", fs.ErrNotExist)
	}
	r := Remains{}
	if err == nil {
		r, err = s.survey(m)
	}
	if err != nil {
		return Remains{}, fmt.Errorf("survey quorum log in %s: %w", dir, err)
	}
	return r, nil
}

func (s *scan) survey(m Machine) (Remains, error) {
	log := &memoryLog{}
	if _, err := s.replay(log); err != nil {
		return Remains{}, err
	}
	last, voters := s.snapshot.id, map[uint64]bool{}
	for _, id := range s.snapshot.conf.GetVoters() {
		voters[id] = true
	}
	if log.has(last) {
		last = log.last()
	}
	for _, e := range log.entries {
		if e.GetIndex() > s.snapshot.id.index && e.GetIndex() <= last.index {
			changeVoters(voters, e)
		}
	}
	r := Remains{NodeID: brokerID(s.node), Term: last.term, LastIndex: last.index}
	for id := range voters {
		r.Voters = append(r.Voters, brokerID(id))
	}
	slices.Sort(r.Voters)
	return r, s.feed(m, log, last.index)
}

// GoOnAlone makes a node the only voter of its quorum, with what its directory has. It is
// for a node that does not run, when a majority of the voters is lost for good: what they
// had decided and this one had not heard of is undone. Of o it needs FS, Dir, NodeID and
// Machine; Snapshot is what the quorum goes on with, and is called when the machine is at
// the last entry. A crash leaves the directory as it was, or done.
//
// The lost voters must never run again on what they had: those that come together would go
// on with it, beside this one.
func GoOnAlone(o Options) error {
	o = o.withDefaults()
	remains, err := Survey(o.FS, o.Dir, o.Machine)
	if err != nil {
		return err
	}
	state, err := o.Machine.Snapshot()
	if err != nil {
		return fmt.Errorf("go on alone with the quorum log in %s: %w", o.Dir, err)
	}
	found, err := recoverDir(o)
	if err != nil {
		return fmt.Errorf("go on alone with the quorum log in %s: %w", o.Dir, err)
	}
	self := raftID(o.NodeID)
	snap := snapshot{
		id: entryID{
			index: remains.LastIndex + remainsIndexGap,
			term:  max(remains.Term, found.log.hard.term) + remainsTermGap,
		},
		conf: &raftpb.ConfState{Voters: []uint64{self}, AutoLeave: new(false)}, members: members{}, data: state,
	}
	if err = writeSnapshot(o, snap); err == nil {
		err = found.wal.reset(snap.id, hardState{term: snap.id.term, commit: snap.id.index})
	}
	if err = errors.Join(err, found.wal.close()); err != nil {
		return fmt.Errorf("go on alone with the quorum log in %s: %w", o.Dir, err)
	}
	return nil
}
