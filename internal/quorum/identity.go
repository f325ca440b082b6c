package quorum

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// A node whose log is damaged or gone can't keep what it promised: that it holds an
// entry, or whom it voted for. Where the other voters are a majority without it, it
// gives the log up, sets the files aside and takes another id. To the others it is a
// node whose data was replaced from then on (StrangerError): it counts for nothing
// until it has been removed from the quorum, and is then sent everything.
//
//	identity: magic(8) version(4) preambleCRC(4) id(16) CRC(4)
const (
	identityMagic = "strQidn\n"
	identityName  = "identity"
	identityTemp  = "identity.tmp"
	identityBytes = preambleBytes + 20
	// asideSuffix ends the names of files that were set aside; nothing reads them.
	asideSuffix = ".damaged"
)

// Identify returns the id by which the other nodes know the log of a directory, which
// is to be Options.Directory: the one that o has, until the log is given up. It does
// that here, before Open, if the log is damaged, or gone although the node took part
// before, and the others decide without it. Where it can't be given up, Open says what
// is damaged.
func Identify(o Options) (id [16]byte, err error) {
	o = o.withDefaults()
	id, renewed, err := readIdentity(o.FS, o.Dir)
	var damage *CorruptionError
	if err != nil && !errors.As(err, &damage) {
		return id, err
	}
	if !renewed {
		id = o.Directory
	}
	s, scanErr := scanDir(o.FS, o.Dir)
	if damage == nil && !errors.As(s.soundness(scanErr, o.Joined && !renewed), &damage) {
		return id, nil // What else is wrong, Open will meet with.
	}
	if s.node != 0 && s.node != raftID(o.NodeID) || !s.othersDecide(o) {
		return id, err
	}
	if id, err = giveUp(o); err != nil {
		return id, fmt.Errorf("give up the damaged quorum log in %s: %w", o.Dir, err)
	}
	o.Logger.Error("the quorum log is damaged and was given up: the other voters hold what was decided. "+
		"This node counts for nothing until it is removed from the quorum and joins again",
		"node", o.NodeID, "error", damage, "kept", "*"+asideSuffix, "directory_id", kafka.TopicID(id))
	return id, nil
}

// soundness says what is wrong with a log, given what reading it met with.
func (s *scan) soundness(err error, joined bool) error {
	switch {
	case err != nil:
		return err
	case len(s.snapshots) > 0:
		_, err := s.replay(&memoryLog{})
		return err
	case joined && len(s.segments) == 0:
		return errGone()
	}
	return s.checkAttempts()
}

// errGone is what is wrong with a log of which nothing is left.
func errGone() error {
	return &CorruptionError{snapshotName(bootstrapID().index), 0, "the log is gone"}
}

// othersDecide reports whether the other voters are a majority, as far as is known:
// by what could be read of the log, else by those that the node was started with.
func (s *scan) othersDecide(o Options) bool {
	self, voters := raftID(o.NodeID), map[uint64]bool{}
	if s.snapshot.conf == nil {
		for _, id := range o.Voters {
			voters[raftID(id)] = true
		}
		return othersAreMajority(voters, self)
	}
	if len(s.snapshot.conf.GetVotersOutgoing()) > 0 {
		return false // Two majorities: rare, short, and for somebody to look at.
	}
	for _, id := range s.snapshot.conf.GetVoters() {
		voters[id] = true
	}
	log := &memoryLog{}
	hs, _ := s.replay(log) // As far as it goes.
	enough := othersAreMajority(voters, self)
	for _, e := range log.entries {
		if e.GetIndex() <= s.snapshot.id.index {
			continue
		}
		changeVoters(voters, e)
		now := othersAreMajority(voters, self)
		// What is not committed may never be: then what was before still holds.
		enough = now && (enough || e.GetIndex() <= hs.commit)
	}
	return enough
}

func othersAreMajority(voters map[uint64]bool, self uint64) bool {
	others := len(voters)
	if voters[self] {
		others--
	}
	return others > len(voters)/2
}

// changeVoters does to a set what an entry does to the voters.
func changeVoters(voters map[uint64]bool, e *raftpb.Entry) {
	change, err := changeIn(e)
	if err != nil || change == nil {
		return
	}
	for _, c := range change.AsV2().GetChanges() {
		switch c.GetType() {
		case raftpb.ConfChangeAddNode:
			voters[c.GetNodeId()] = true
		case raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeRemoveNode:
			delete(voters, c.GetNodeId())
		}
	}
}

// giveUp takes a new id, and then sets the files of the log aside: a crash in between
// leaves a log that is damaged, and the next start goes on.
func giveUp(o Options) (id [16]byte, err error) {
	_, _ = rand.Read(id[:]) // Never fails.
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	if err := makeDir(o.FS, o.Dir); err != nil {
		return id, err
	}
	if err := writeIdentity(o.FS, o.Dir, id); err != nil {
		return id, err
	}
	entries, err := o.FS.ReadDir(o.Dir)
	if err != nil {
		return id, err
	}
	var names []string
	for _, e := range entries {
		_, segment := parseName(e.Name(), "segment-")
		_, snapshot := parseName(e.Name(), "snapshot-")
		if segment || snapshot || e.Name() == stopName {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(asideRank(a), asideRank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		name = path.Join(o.Dir, name)
		if err := o.FS.Rename(name, name+asideSuffix); err != nil {
			return id, err
		}
	}
	return id, o.FS.SyncDir(o.Dir)
}

// asideRank orders what is set aside: while a snapshot is there it says who decides,
// and while the note of the last stop is there segments are missed.
func asideRank(name string) int {
	switch {
	case strings.HasPrefix(name, "segment-"):
		return 0
	case name == stopName:
		return 1
	}
	return 2
}

// writeIdentity stores an id durably.
func writeIdentity(fsys vfs.FS, dir string, id [16]byte) error {
	buf := append(appendPreamble(nil, identityMagic), id[:]...)
	buf = binary.LittleEndian.AppendUint32(buf, checksum(buf))
	temp := path.Join(dir, identityTemp)
	file, err := fsys.Open(temp, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(buf, 0)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, path.Join(dir, identityName)); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// readIdentity reads it; renewed is false where the log was never given up.
func readIdentity(fsys vfs.FS, dir string) (id [16]byte, renewed bool, err error) {
	name := path.Join(dir, identityName)
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err == nil {
		err = checkPreamble(name, data, identityMagic)
	}
	if err != nil {
		return id, false, err
	}
	body := identityBytes - 4
	if len(data) != identityBytes || checksum(data[:body]) != binary.LittleEndian.Uint32(data[body:]) {
		return id, false, &CorruptionError{name, preambleBytes, "length or checksum is wrong"}
	}
	copy(id[:], data[preambleBytes:])
	return id, true, nil
}
