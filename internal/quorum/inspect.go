package quorum

import (
	"fmt"
	"io/fs"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/vfs"
)

// Inspect brings a machine to the state that a log on disk describes, and
// changes nothing there: no repair, no vote, no lock. Tools use it on a data
// directory that may belong to a running broker; when files go while they are
// read, the error is fs.ErrNotExist and another try helps.
//
// It applies what is known to be committed; of a lone voter's log that is all.
func Inspect(fsys vfs.FS, dir string, m Machine) error {
	s, err := scanDir(fsys, dir)
	if err == nil && len(s.snapshots) == 0 {
		err = fmt.Errorf("no log: %w", fs.ErrNotExist)
	}
	if err == nil {
		err = s.inspect(m)
	}
	if err != nil {
		return fmt.Errorf("inspect quorum log in %s: %w", dir, err)
	}
	return nil
}

func (s *scan) inspect(m Machine) error {
	log := &memoryLog{}
	hs, err := s.replay(log)
	if err != nil {
		return err
	}
	committed := hs.commit
	if slices.Equal(s.snapshot.conf.GetVoters(), []uint64{s.node}) && !log.changesMembers() {
		committed = log.last().index
	}
	return s.feed(m, log, committed)
}

// feed brings a machine to the state after an entry.
func (s *scan) feed(m Machine, log *memoryLog, last uint64) error {
	snap := s.snapshot
	if snap.id != bootstrapID() {
		if err := m.Restore(snap.id.index, snap.data); err != nil {
			return fmt.Errorf("restore snapshot %d: %w", snap.id.index, err)
		}
	}
	if !log.has(snap.id) {
		return nil // The snapshot stands alone, see settle.
	}
	for _, e := range log.entries {
		index := e.GetIndex()
		if index <= snap.id.index || index > last || e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		if err := m.Apply(index, e.GetData()); err != nil {
			return fmt.Errorf("apply entry %d: %w", index, err)
		}
	}
	return nil
}

// changesMembers reports whether an entry changes who takes part.
func (m *memoryLog) changesMembers() bool {
	return slices.ContainsFunc(m.entries, func(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal })
}
