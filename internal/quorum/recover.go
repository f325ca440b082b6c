package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/vfs"
)

// snapshotTemp is a snapshot that is being written.
const snapshotTemp = "snapshot.tmp"

func snapshotName(index uint64) string { return fmt.Sprintf("snapshot-%016x", index) }

// recovered is what a directory held, repaired and durable.
type recovered struct {
	snapshot snapshot
	log      *memoryLog
	wal      *wal
}

// scan is a directory as it was found. Making one changes nothing on disk.
type scan struct {
	snapshots []uint64 // Indexes, ascending.
	snapshot  snapshot // The newest.
	segments  []scannedSegment
	leftovers []string // Files to remove: never finished, or needed no more.
	node      uint64   // Whose log it is, 0 without any file.
	// stopDamage says why the note of the last stop can't be read.
	stopDamage error
}

// scannedSegment is one segment of the chain that is used.
type scannedSegment struct {
	sequence uint64
	path     string
	data     []byte
	segmentContent
}

// recoverDir reads everything first, refusing what it does not understand,
// and only then repairs.
func recoverDir(opt Options) (recovered, error) {
	s, err := scanDir(opt.FS, opt.Dir)
	if err != nil {
		return recovered{}, err
	}
	if s.node != 0 && s.node != raftID(opt.NodeID) {
		// With another node's log this one would vote twice.
		return recovered{}, fmt.Errorf("the log belongs to node %d, this is node %d: start it with "+
			"--node-id %d or with another data directory", brokerID(s.node), opt.NodeID, brokerID(s.node))
	}
	if s.stopDamage != nil {
		opt.Logger.Warn("the note of the quorum log's last stop is damaged and not used", "error", s.stopDamage)
	}
	if len(s.snapshots) == 0 {
		return bootstrap(opt, s)
	}
	if err := checkConf(s.snapshot.conf); err != nil {
		return recovered{}, &CorruptionError{snapshotName(s.snapshot.id.index), snapshotHeaderBytes, err.Error()}
	}
	r := recovered{snapshot: s.snapshot, log: &memoryLog{conf: s.snapshot.conf}}
	hs, err := s.replay(r.log)
	if err != nil {
		return recovered{}, err
	}
	if r.wal, err = s.openWAL(opt, r.log, hs); err != nil {
		return recovered{}, err
	}
	if err := s.settle(&r, opt, hs); err != nil {
		return recovered{}, errors.Join(err, r.wal.close())
	}
	return r, nil
}

// scanDir lists and decodes a directory. With an error it returns what it had read
// before.
func scanDir(fsys vfs.FS, dir string) (*scan, error) {
	s := &scan{}
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	var sequences []uint64
	for _, e := range entries {
		if n, ok := parseName(e.Name(), "snapshot-"); ok {
			s.snapshots = append(s.snapshots, n)
		} else if n, ok := parseName(e.Name(), "segment-"); ok {
			sequences = append(sequences, n)
		} else if e.Name() == snapshotTemp || e.Name() == stopTemp || e.Name() == identityTemp {
			s.leftovers = append(s.leftovers, e.Name())
		}
	}
	slices.Sort(s.snapshots)
	slices.Sort(sequences)
	if err := s.readSnapshots(fsys, dir); err != nil {
		return s, err
	}
	if err := s.readSegments(fsys, dir, sequences); err != nil {
		return s, err
	}
	return s, s.checkStop(fsys, dir)
}

// parseName returns the number in a file's name.
func parseName(name, prefix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil
}

// readSnapshots reads the newest one; a snapshot was synced before it got its
// name, so it has to be whole.
func (s *scan) readSnapshots(fsys vfs.FS, dir string) error {
	for i, index := range s.snapshots {
		name := path.Join(dir, snapshotName(index))
		data, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		if i < len(s.snapshots)-1 {
			var version *VersionError
			if err := checkPreamble(name, data, snapshotMagic); errors.As(err, &version) {
				return err
			}
			s.leftovers = append(s.leftovers, snapshotName(index))
			continue
		}
		snap, node, err := parseSnapshot(name, data)
		if err != nil {
			return err
		}
		if snap.id.index != index {
			return &CorruptionError{name, 16, fmt.Sprintf("index %d differs from the name", snap.id.index)}
		}
		if err := s.own(name, 32, node); err != nil {
			return err
		}
		s.snapshot = snap
	}
	return nil
}

// readSegments reads the chain that ends with the last segment. What stands
// before a gap came back after it had been removed.
func (s *scan) readSegments(fsys vfs.FS, dir string, sequences []uint64) error {
	for i, sequence := range sequences {
		name := path.Join(dir, segmentName(sequence))
		data, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		if i > 0 && sequence != sequences[i-1]+1 {
			s.dropSegments()
		}
		content, err := parseSegment(name, data)
		last := i == len(sequences)-1
		switch {
		case errors.Is(err, errUnfinished) && last:
			s.leftovers = append(s.leftovers, segmentName(sequence))
			continue
		case errors.Is(err, errUnfinished):
			return &CorruptionError{name, 0, "no valid frame, in a segment that is not the last"}
		case err != nil:
			if len(content.frames) > 0 {
				s.segments = append(s.segments, scannedSegment{sequence, name, data, content})
			}
			return err
		}
		if content.header.sequence != sequence {
			return &CorruptionError{name, 16, fmt.Sprintf("sequence %d differs from the name", content.header.sequence)}
		}
		if err := s.own(name, 48, content.header.node); err != nil {
			return err
		}
		s.segments = append(s.segments, scannedSegment{sequence, name, data, content})
	}
	return s.checkChain()
}

// dropSegments leaves out all segments so far.
func (s *scan) dropSegments() {
	for _, seg := range s.segments {
		s.leftovers = append(s.leftovers, segmentName(seg.sequence))
	}
	s.segments = nil
}

// checkChain verifies that frames are numbered through, and that only the last
// segment is torn.
func (s *scan) checkChain() error {
	for i, seg := range s.segments {
		if i == len(s.segments)-1 {
			break
		}
		if seg.torn {
			return &CorruptionError{seg.path, seg.end, "no valid frame, and a later segment follows"}
		}
		next := s.segments[i+1]
		if want := seg.header.firstFrame + uint64(len(seg.frames)); next.header.firstFrame != want {
			return &CorruptionError{next.path, 40, fmt.Sprintf(
				"begins with frame %d, the segment before ends with %d", next.header.firstFrame, want-1)}
		}
	}
	return nil
}

// own notes whose log it is: all files are of one node.
func (s *scan) own(name string, position int64, node uint64) error {
	if s.node != 0 && s.node != node {
		return &CorruptionError{name, position, fmt.Sprintf(
			"belongs to node %d, another file to node %d", brokerID(node), brokerID(s.node))}
	}
	s.node = node
	return nil
}

// replay puts all entries into the log and returns the last hard state.
func (s *scan) replay(log *memoryLog) (hardState, error) {
	if len(s.segments) == 0 {
		return hardState{}, &CorruptionError{
			snapshotName(s.snapshot.id.index), 0,
			"a snapshot is there, but no segment of the log",
		}
	}
	var hs hardState
	for i, seg := range s.segments {
		if base := seg.header.base; i == 0 || !log.has(base) {
			log.reset(base)
		} else {
			log.truncateTo(base.index)
		}
		for _, f := range seg.frames {
			hs = f.hard
			for _, e := range f.entries {
				// A copy, so that the file's bytes need not stay in memory.
				e.Data = bytes.Clone(e.Data)
			}
			if err := log.put(f.entries); err != nil {
				return hardState{}, &CorruptionError{seg.path, seg.end, err.Error()}
			}
		}
	}
	if s.snapshot.id.index < log.base.index {
		return hardState{}, &CorruptionError{s.segments[0].path, 24, fmt.Sprintf(
			"the log begins after entry %d, the snapshot ends with %d",
			log.base.index, s.snapshot.id.index)}
	}
	return hs, nil
}

// openWAL makes what was found durable and opens it for appending. The last
// frame may never have been synced, or its sync may have failed: it is written
// again, because a second sync alone proves nothing.
func (s *scan) openWAL(opt Options, log *memoryLog, hs hardState) (*wal, error) {
	seg := s.segments[len(s.segments)-1]
	file, err := opt.FS.Open(seg.path, vfs.ReadWrite)
	if err != nil {
		return nil, err
	}
	if err := repairTail(file, seg); err != nil {
		return nil, errors.Join(fmt.Errorf("repair %s: %w", seg.path, err), file.Close())
	}
	w := newWAL(opt)
	for _, seg := range s.segments {
		w.segments = append(w.segments, walSegment{seg.sequence, seg.header.base.index})
	}
	w.file, w.salt, w.position = file, seg.header.salt, seg.end
	w.capacity = max(opt.SegmentBytes, seg.end)
	w.nextFrame = seg.header.firstFrame + uint64(len(seg.frames))
	w.last, w.hard = log.last(), hs
	if seg.torn {
		opt.Logger.Warn("cut a torn write off the quorum log", "path", seg.path, "position", seg.end)
	}
	return w, nil
}

// repairTail overwrites a torn tail with zeros, which takes no new block and so
// works on a full disk, rewrites the last frame, and syncs.
func repairTail(file vfs.File, seg scannedSegment) error {
	length := int64(len(seg.data))
	if seg.torn {
		zeros := make([]byte, 64<<10)
		for p := seg.end; p < length; p += int64(len(zeros)) {
			if _, err := file.WriteAt(zeros[:min(int64(len(zeros)), length-p)], p); err != nil {
				return err
			}
		}
	}
	from := seg.lastFrame
	if from <= segmentHeaderBytes {
		from = 0 // The header was written along with the first frame.
	}
	if _, err := file.WriteAt(seg.data[from:min(seg.end, length)], from); err != nil {
		return err
	}
	return file.Sync()
}

// settle removes leftovers, makes the directory durable, and brings log,
// snapshot and hard state together.
func (s *scan) settle(r *recovered, opt Options, hs hardState) error {
	for _, name := range s.leftovers {
		if err := opt.FS.Remove(path.Join(opt.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := opt.FS.SyncDir(opt.Dir); err != nil {
		return err
	}
	snap := s.snapshot.id
	hs.commit = max(hs.commit, snap.index)
	if !r.log.has(snap) {
		// A crash came after a leader's snapshot was stored and before the log
		// was begun anew behind it. What the log holds is another history.
		if snap.term > hs.term {
			hs.term, hs.vote = snap.term, 0
		}
		hs.commit = snap.index
		if err := r.wal.reset(snap, hs); err != nil {
			return err
		}
		r.log.reset(snap)
	}
	last := r.log.last()
	if hs.commit > last.index || hs.term < last.term {
		return &CorruptionError{s.segments[len(s.segments)-1].path, 0, fmt.Sprintf(
			"term %d and commit index %d do not fit the last entry, %d of term %d",
			hs.term, hs.commit, last.index, last.term)}
	}
	r.log.hard, r.wal.hard = hs, hs
	return nil
}

func newWAL(opt Options) *wal {
	return &wal{
		fs: opt.FS, dir: opt.Dir, node: raftID(opt.NodeID),
		segmentBytes: opt.SegmentBytes, nextFrame: 1,
	}
}

// bootstrap begins a new quorum, or an empty log that joins one. The snapshot comes
// last: without one the directory counts as empty, however far an earlier attempt got.
func bootstrap(opt Options, s *scan) (recovered, error) {
	founding, renewed := slices.Contains(opt.Voters, opt.NodeID), false
	if opt.Joined || founding && opt.Transport != nil {
		var err error
		if _, renewed, err = readIdentity(opt.FS, opt.Dir); err != nil {
			return recovered{}, err
		}
	}
	if opt.Joined && !renewed && len(s.segments) == 0 {
		return recovered{}, errGone() // Begun anew, it would not know what it decided or promised.
	}
	if renewed && opt.Transport != nil {
		founding = false // It was founded without the log that was given up.
	}
	if !founding && opt.Transport == nil {
		return recovered{}, errors.New("the directory holds no log, and no voters are given to begin one")
	}
	if err := s.clearAttempts(opt); err != nil {
		return recovered{}, err
	}
	if err := makeDir(opt.FS, opt.Dir); err != nil {
		return recovered{}, err
	}
	conf := &raftpb.ConfState{AutoLeave: new(false)}
	r := recovered{
		snapshot: snapshot{conf: conf, members: members{}},
		log:      &memoryLog{conf: conf}, wal: newWAL(opt),
	}
	if founding {
		for _, id := range opt.Voters {
			conf.Voters = append(conf.Voters, raftID(id))
		}
		slices.Sort(conf.Voters)
		r.snapshot.id = bootstrapID()
		r.log.base, r.log.hard = bootstrapID(), firstHardState()
	}
	r.wal.hard = r.log.hard
	err := r.wal.createSegment(r.log.base, 0)
	if err == nil && founding {
		err = writeSnapshot(opt, r.snapshot)
	}
	if err != nil {
		return recovered{}, errors.Join(err, r.wal.close())
	}
	return r, nil
}

// firstHardState is what a new quorum begins with.
func firstHardState() hardState {
	return hardState{term: bootstrapID().term, commit: bootstrapID().index}
}

// clearAttempts removes what begins of a log left.
func (s *scan) clearAttempts(opt Options) error {
	if err := s.checkAttempts(); err != nil {
		return err
	}
	for _, seg := range s.segments {
		s.leftovers = append(s.leftovers, segmentName(seg.sequence))
	}
	for _, name := range s.leftovers {
		if err := opt.FS.Remove(path.Join(opt.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// checkAttempts refuses segments that are more than a begin. A node that joins notes
// terms and nothing else, for as long as it has not been sent the snapshot to begin
// with: it votes for nobody, so they may be forgotten.
func (s *scan) checkAttempts() error {
	for _, seg := range s.segments {
		for _, f := range seg.frames {
			joining := f.hard.vote == 0 && f.hard.commit == 0
			if f.hard != firstHardState() && !joining || len(f.entries) > 0 {
				return &CorruptionError{
					seg.path, segmentHeaderBytes,
					"the log has entries, but no snapshot is there",
				}
			}
		}
	}
	return nil
}

// makeDir makes a directory durable, with the parents it is the first to need.
func makeDir(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for d := path.Clean(dir); d != "." && d != "/"; {
		d = path.Dir(d)
		if err := fsys.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// errSnapshotSkipped marks errors after which the log goes on as if no
// snapshot had been tried.
var errSnapshotSkipped = errors.New("snapshot skipped")

// writeSnapshot stores a snapshot durably under its name. An error that is not
// errSnapshotSkipped is final.
func writeSnapshot(opt Options, s snapshot) error {
	temp := path.Join(opt.Dir, snapshotTemp)
	buf := s.appendTo(make([]byte, 0, len(s.data)+1024), raftID(opt.NodeID))
	file, err := opt.FS.Open(temp, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("%w: %w", errSnapshotSkipped, err)
	}
	if _, err := file.WriteAt(buf, 0); err != nil {
		return fmt.Errorf("%w: %w", errSnapshotSkipped, errors.Join(err, file.Close(), opt.FS.Remove(temp)))
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync snapshot: %w", errors.Join(err, file.Close()))
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}
	if err := opt.FS.Rename(temp, path.Join(opt.Dir, snapshotName(s.id.index))); err != nil {
		return fmt.Errorf("name snapshot: %w", err)
	}
	if err := opt.FS.SyncDir(opt.Dir); err != nil {
		return fmt.Errorf("sync snapshot: %w", err)
	}
	return nil
}

// readFile reads a file to its end.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, size), data); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", name, err), file.Close())
	}
	return data, file.Close()
}
