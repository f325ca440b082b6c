package quorum

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// entryID names an entry: no two entries of one index and term differ.
type entryID struct{ index, term uint64 }

func idOf(e *raftpb.Entry) entryID { return entryID{e.GetIndex(), e.GetTerm()} }

// hardState is what a node must not forget: its term, whom it voted for in it,
// and what it knows to be committed.
type hardState struct{ term, vote, commit uint64 }

// memoryLog is the part of the log that is held in memory: what the library
// reads. It implements raft.Storage. It only mirrors the disk: entries get here
// after they were synced.
//
//	base | entries ........ last
//
// Invariant: entries[i] has index base.index+1+i, and terms do not decrease.
type memoryLog struct {
	base    entryID
	entries []*raftpb.Entry

	// hard and conf are what was found on disk; the library asks once.
	hard hardState
	conf *raftpb.ConfState
	// snapshot returns the applied state with the configuration that holds
	// now. A snapshot from before the receiver joined would be ignored by it
	// and sent again for ever.
	snapshot func() (*raftpb.Snapshot, error)
}

func (m *memoryLog) last() entryID {
	if len(m.entries) == 0 {
		return m.base
	}
	return idOf(m.entries[len(m.entries)-1])
}

// has reports whether the log holds exactly this entry, its base included.
func (m *memoryLog) has(id entryID) bool {
	term, err := m.Term(id.index)
	return err == nil && term == id.term
}

// put appends entries, which replace those of the same index and all after
// them. An entry at or below the base becomes the base: everything before it
// is in the snapshot.
func (m *memoryLog) put(entries []*raftpb.Entry) error {
	for _, e := range entries {
		id := idOf(e)
		switch last := m.last(); {
		case id.index <= m.base.index:
			m.reset(id)
			continue
		case id.index > last.index+1:
			return fmt.Errorf("entry %d follows entry %d", id.index, last.index)
		case id.index <= last.index:
			m.truncateTo(id.index - 1)
		}
		if last := m.last(); id.term < last.term {
			return fmt.Errorf("entry %d of term %d follows one of term %d", id.index, id.term, last.term)
		}
		m.entries = append(m.entries, e)
	}
	return nil
}

// reset forgets all entries.
func (m *memoryLog) reset(base entryID) { m.base, m.entries = base, nil }

// truncateTo forgets all entries after index. The capacity goes with them, so
// that a later append leaves slices alone that the library still holds.
func (m *memoryLog) truncateTo(index uint64) {
	if n := index - m.base.index; index >= m.base.index && n < uint64(len(m.entries)) {
		m.entries = m.entries[:n:n]
	}
}

// compact forgets the entries up to index, which becomes the base.
func (m *memoryLog) compact(index uint64) {
	if index <= m.base.index {
		return
	}
	n := index - m.base.index
	m.base = idOf(m.entries[n-1])
	// A new array, so that the old one can go.
	m.entries = append([]*raftpb.Entry(nil), m.entries[n:]...)
}

// InitialState implements raft.Storage.
func (m *memoryLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs := &raftpb.HardState{
		Term: new(m.hard.term), Vote: new(m.hard.vote), Commit: new(m.hard.commit),
	}
	return hs, proto.CloneOf(m.conf), nil
}

// Entries implements raft.Storage.
func (m *memoryLog) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= m.base.index {
		return nil, raft.ErrCompacted
	}
	if hi > m.last().index+1 {
		return nil, raft.ErrUnavailable
	}
	entries := m.entries[lo-m.base.index-1 : hi-m.base.index-1]
	var size uint64
	for i, e := range entries {
		if size += uint64(proto.Size(e)); size > maxSize && i > 0 {
			return entries[:i:i], nil
		}
	}
	return entries[:len(entries):len(entries)], nil
}

// Term implements raft.Storage.
func (m *memoryLog) Term(index uint64) (uint64, error) {
	switch {
	case index < m.base.index:
		return 0, raft.ErrCompacted
	case index == m.base.index:
		return m.base.term, nil
	case index > m.last().index:
		return 0, raft.ErrUnavailable
	}
	return m.entries[index-m.base.index-1].GetTerm(), nil
}

// LastIndex implements raft.Storage.
func (m *memoryLog) LastIndex() (uint64, error) { return m.last().index, nil }

// FirstIndex implements raft.Storage.
func (m *memoryLog) FirstIndex() (uint64, error) { return m.base.index + 1, nil }

// Snapshot implements raft.Storage.
func (m *memoryLog) Snapshot() (*raftpb.Snapshot, error) { return m.snapshot() }
