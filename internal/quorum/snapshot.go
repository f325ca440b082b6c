package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// snapshot is the machine's state after one entry, with the configuration that
// held then.
type snapshot struct {
	id   entryID
	conf *raftpb.ConfState
	// members may be empty: a lone voter knows nobody. Then the file is of version 1.
	members members
	data    []byte
}

// bootstrapID is the entry that stands before the first one. Its snapshot
// carries the first configuration and no state: the machine begins empty.
// Every voter begins with the same.
func bootstrapID() entryID { return entryID{index: 1, term: 1} }

// appendTo appends the snapshot's file format.
func (s snapshot) appendTo(dst []byte, node uint64) []byte {
	le := binary.LittleEndian
	start := len(dst)
	conf, version := appendConf(nil, s.conf), FormatVersion
	if len(s.members) > 0 {
		conf, version = appendMembers(conf, s.members), SnapshotVersion
	}
	dst = appendPreambleOf(dst, snapshotMagic, version)
	dst = le.AppendUint64(dst, s.id.index)
	dst = le.AppendUint64(dst, s.id.term)
	dst = le.AppendUint64(dst, node)
	dst = le.AppendUint32(dst, uint32(len(conf)))
	dst = le.AppendUint64(dst, uint64(len(s.data)))
	dst = le.AppendUint32(dst, checksum(dst[start:]))
	body := len(dst)
	dst = append(dst, conf...)
	dst = append(dst, s.data...)
	return le.AppendUint32(dst, checksum(dst[body:]))
}

// parseSnapshot is the inverse; the result's data aliases the argument.
func parseSnapshot(path string, data []byte) (s snapshot, node uint64, err error) {
	if err := checkPreamble(path, data, snapshotMagic); err != nil {
		return snapshot{}, 0, err
	}
	fail := func(position int, reason string) (snapshot, uint64, error) {
		return snapshot{}, 0, &CorruptionError{path, int64(position), reason}
	}
	if len(data) < snapshotHeaderBytes+4 {
		return fail(preambleBytes, "header cut short")
	}
	le := binary.LittleEndian
	if checksum(data[:52]) != le.Uint32(data[52:]) {
		return fail(preambleBytes, "checksum of the header does not match")
	}
	s.id = entryID{le.Uint64(data[16:]), le.Uint64(data[24:])}
	node = le.Uint64(data[32:])
	confBytes, dataBytes := uint64(le.Uint32(data[40:])), le.Uint64(data[44:])
	body := data[snapshotHeaderBytes : len(data)-4]
	if dataBytes > uint64(len(body)) || confBytes+dataBytes != uint64(len(body)) {
		return fail(snapshotHeaderBytes, "length does not match the header's")
	}
	if checksum(body) != le.Uint32(data[len(data)-4:]) {
		return fail(snapshotHeaderBytes, "checksum does not match")
	}
	if s.id.index == 0 || s.id.index > maxIndex {
		return fail(preambleBytes, fmt.Sprintf("index %d", s.id.index))
	}
	if err := s.parseConfiguration(body[:confBytes], le.Uint32(data[8:])); err != nil {
		return fail(snapshotHeaderBytes, err.Error())
	}
	s.data = body[confBytes:]
	return s, node, nil
}

// parseConfiguration reads what stands before the machine's data; a file of version 1
// has no members.
func (s *snapshot) parseConfiguration(data []byte, version uint32) (err error) {
	if s.conf, data, err = cutConf(data); err != nil {
		return err
	}
	s.members = members{}
	if version >= SnapshotVersion {
		if s.members, data, err = cutMembers(data); err == nil && len(s.members) == 0 {
			err = errors.New("a list of members without any")
		}
	}
	if err == nil && len(data) > 0 {
		err = errors.New("configuration does not end where it should")
	}
	return err
}

// appendConf appends a configuration: four lists of nodes, each behind its
// length, and one byte that says whether a joint configuration ends by itself.
func appendConf(dst []byte, conf *raftpb.ConfState) []byte {
	for _, ids := range [...][]uint64{
		conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext(),
	} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(ids)))
		for _, id := range ids {
			dst = binary.LittleEndian.AppendUint64(dst, id)
		}
	}
	if conf.GetAutoLeave() {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// cutConf is the inverse; it returns what follows.
func cutConf(data []byte) (conf *raftpb.ConfState, rest []byte, err error) {
	conf = &raftpb.ConfState{}
	for _, ids := range [...]*[]uint64{
		&conf.Voters, &conf.Learners, &conf.VotersOutgoing, &conf.LearnersNext,
	} {
		if len(data) < 4 {
			return nil, nil, errors.New("configuration cut short")
		}
		count := binary.LittleEndian.Uint32(data)
		data = data[4:]
		if uint64(count)*8 > uint64(len(data)) {
			return nil, nil, errors.New("a list of the configuration is cut short")
		}
		for range count {
			*ids = append(*ids, binary.LittleEndian.Uint64(data))
			data = data[8:]
		}
	}
	if len(data) < 1 || data[0] > 1 {
		return nil, nil, errors.New("configuration does not end where it should")
	}
	conf.AutoLeave = new(data[0] == 1)
	return conf, data[1:], nil
}
