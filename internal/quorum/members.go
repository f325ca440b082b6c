package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
)

// Member is a node of the quorum, voter or learner.
type Member struct {
	ID kafka.BrokerID
	// Directory is the id of its data directory, zero while nobody knows it. A node
	// of the same id with another directory is not the same member: it lacks what
	// that one has promised to hold (Kafka's KIP-853).
	Directory [16]byte
	// Address is where it is reached, "" while nobody knows it.
	Address string
}

// members are those that were told of themselves, by id. It is never changed, only
// replaced.
type members map[kafka.BrokerID]Member

// Member returns what the quorum has agreed on about a member. It is safe to call
// from anywhere.
func (q *Quorum) Member(id kafka.BrokerID) (Member, bool) {
	m, ok := (*q.members.Load())[id]
	return m, ok
}

func (q *Quorum) setMembers(m members) { q.members.Store(&m) }

// setMember replaces one.
func (q *Quorum) setMember(m Member) {
	next := maps.Clone(*q.members.Load())
	next[m.ID] = m
	q.setMembers(next)
}

// removeMember forgets one.
func (q *Quorum) removeMember(id kafka.BrokerID) {
	next := maps.Clone(*q.members.Load())
	delete(next, id)
	q.setMembers(next)
}

// check refuses what the quorum could not keep: it would be agreed on by all, and end all
// when they apply it.
func (m Member) check() error {
	switch {
	case m.ID < 0:
		return &MemberError{ID: m.ID, Problem: Nameless}
	case len(m.Address) > maxAddressBytes:
		return &MemberError{ID: m.ID, Problem: LongAddress}
	}
	return nil
}

// check refuses who can be no member, and who has the id of one and another directory.
func (q *Quorum) check(from Member) error {
	if err := from.check(); err != nil {
		return err
	}
	known, ok := q.Member(from.ID)
	if ok && known.Directory != [16]byte{} && known.Directory != from.Directory {
		return &StrangerError{ID: from.ID, Known: known.Directory, Directory: from.Directory}
	}
	return nil
}

// maxAddressBytes is the longest address that is taken.
const maxAddressBytes = 1024

// memberBytes is the size of the context of a change without the address.
const memberBytes = 16

// appendMember appends what a change of members says about a node: directory(16),
// then the address.
func appendMember(dst []byte, m Member) []byte {
	return append(append(dst, m.Directory[:]...), m.Address...)
}

// parseMember is the inverse.
func parseMember(id kafka.BrokerID, context []byte) (Member, error) {
	if len(context) < memberBytes || len(context) > memberBytes+maxAddressBytes {
		return Member{}, fmt.Errorf("%d bytes about node %d", len(context), id)
	}
	m := Member{ID: id, Address: string(context[memberBytes:])}
	copy(m.Directory[:], context)
	return m, nil
}

// appendMembers appends all: count(4), then by ascending id node(8) length(4) and
// what appendMember appends.
func appendMembers(dst []byte, all members) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(all)))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := all[id]
		dst = le.AppendUint64(dst, raftID(id))
		dst = le.AppendUint32(dst, uint32(memberBytes+len(m.Address)))
		dst = appendMember(dst, m)
	}
	return dst
}

// cutMembers is the inverse; it returns what follows.
func cutMembers(data []byte) (all members, rest []byte, err error) {
	le := binary.LittleEndian
	if len(data) < 4 {
		return nil, nil, errors.New("members cut short")
	}
	count := le.Uint32(data)
	data = data[4:]
	all = members{}
	last := uint64(0)
	for range count {
		if len(data) < 12 {
			return nil, nil, errors.New("a member is cut short")
		}
		node, length := le.Uint64(data), uint64(le.Uint32(data[8:]))
		data = data[12:]
		if node <= last || node > maxNode || length > uint64(len(data)) {
			return nil, nil, errors.New("members are out of order or cut short")
		}
		last = node
		m, err := parseMember(brokerID(node), data[:length])
		if err != nil {
			return nil, nil, err
		}
		all[m.ID] = m
		data = data[length:]
	}
	return all, data, nil
}

// maxNode is the largest id of the library that stands for a node.
const maxNode = 1 << 31

// wrapState is the content of a snapshot that is sent: the members, then the
// machine's state.
func wrapState(all members, state []byte) []byte {
	dst := make([]byte, 0, len(state)+64*(1+len(all)))
	return append(appendMembers(dst, all), state...)
}

// unwrapState is the inverse.
func unwrapState(s *raftpb.Snapshot) (all members, state []byte, err error) {
	return cutMembers(s.GetData())
}

// isVoter reports whether the configuration counts the vote of a node.
func isVoter(conf *raftpb.ConfState, id uint64) bool {
	return slices.Contains(conf.GetVoters(), id) || slices.Contains(conf.GetVotersOutgoing(), id)
}

// isLearner reports whether a node follows without a vote.
func isLearner(conf *raftpb.ConfState, id uint64) bool {
	return slices.Contains(conf.GetLearners(), id) || slices.Contains(conf.GetLearnersNext(), id)
}

// belongs reports whether a node takes part.
func belongs(conf *raftpb.ConfState, id uint64) bool { return isVoter(conf, id) || isLearner(conf, id) }
