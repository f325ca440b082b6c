package quorum

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/vfs"
)

// headroomBytes of a segment are left to the frames that no reserve comes
// before: votes and the empty entry of a new leader. With them a node whose
// disk is full still starts.
const headroomBytes = 4096

// wal is the log on disk, a chain of segments of which the last is appended to.
//
// Crash safety, one line per step that a crash may come before or after:
//
//   - A frame is written and synced: it is there whole, or it is a torn tail,
//     which no message and no caller has been told of.
//   - A segment is created with its header and the hard state in one block,
//     synced, and its directory entry synced: before that nothing refers to
//     it, and recovery removes it.
//   - Old segments are removed oldest first. Some may come back: what stands
//     before a gap in the sequence is removed again.
type wal struct {
	fs   vfs.FS
	dir  string
	node uint64
	// segmentBytes is the size of a segment unless one frame needs more.
	segmentBytes int64

	segments []walSegment // Oldest first, without a gap.
	file     vfs.File     // Of the last segment.
	salt     uint32
	position int64 // Where the next frame goes.
	capacity int64
	// allocated says that the blocks up to capacity are ours, so that a full
	// disk can't fail a write.
	allocated bool

	nextFrame uint64
	last      entryID // The last entry of the log as written.
	hard      hardState
	buf       []byte
	// failed is set by the first failed sync or write and returned ever after.
	failed error
}

// walSegment is what is remembered of a segment.
type walSegment struct {
	sequence uint64
	base     uint64 // Index of the last entry before it.
}

// segmentName returns the name of a segment's file within the directory.
func segmentName(sequence uint64) string { return fmt.Sprintf("segment-%016x", sequence) }

// reserve makes sure that a frame of n bytes can be saved although the disk
// fills up. An error promises that the log is as before, unless failed is set.
func (w *wal) reserve(n int64) error {
	if w.failed != nil {
		return w.failed
	}
	if w.position+n+headroomBytes > w.capacity {
		return w.createSegment(w.last, n)
	}
	if w.allocated {
		return nil
	}
	if err := w.file.Allocate(0, w.capacity); err != nil {
		return fmt.Errorf("reserve space for the quorum log: %w", err)
	}
	w.allocated = true
	return nil
}

// save makes a frame durable. It does not return until it is synced; an error
// is final, unless the disk is full: then the log is as before.
func (w *wal) save(hs hardState, entries []*raftpb.Entry) error {
	if w.failed != nil {
		return w.failed
	}
	size := frameBytes(entries)
	if w.position+size > w.capacity {
		if err := w.createSegment(w.last, size); err != nil {
			return w.finalUnlessFull(err)
		}
	}
	w.hard = hs
	w.buf = appendFrame(w.buf[:0], w.salt, w.nextFrame, hs, entries)
	if _, err := w.file.WriteAt(w.buf, w.position); err != nil {
		return w.finalUnlessFull(fmt.Errorf("write quorum log: %w", err))
	}
	if err := w.file.Sync(); err != nil {
		w.failed = fmt.Errorf("sync quorum log: %w", err)
		return w.failed
	}
	w.position += size
	w.nextFrame++
	if len(entries) > 0 {
		w.last = idOf(entries[len(entries)-1])
	}
	if cap(w.buf) > 1<<20 {
		w.buf = nil
	}
	return nil
}

// finalUnlessFull makes an error final. What a full disk took of a frame was not synced,
// and is written over.
func (w *wal) finalUnlessFull(err error) error {
	if w.failed == nil && !vfs.IsFull(err) {
		w.failed = err
	}
	return err
}

// createSegment begins a new segment after base, with room for a frame of n
// bytes, and makes it durable. The hard state is its first frame, so that older
// segments can go. An error before the first sync leaves the log as it was; a
// failed sync is final.
func (w *wal) createSegment(base entryID, n int64) error {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // Never fails.
	h := segmentHeader{
		sequence: w.nextSequence(), base: base, firstFrame: w.nextFrame,
		node: w.node, salt: binary.LittleEndian.Uint32(salt[:]),
	}
	hs := w.hard
	hs.commit = min(hs.commit, base.index) // Of what the log holds by then.
	buf := appendFrame(h.appendTo(nil), h.salt, h.firstFrame, hs, nil)
	capacity := max(w.segmentBytes, int64(len(buf))+n+headroomBytes)
	name := path.Join(w.dir, segmentName(h.sequence))
	file, err := w.writeNew(name, buf, capacity)
	if err != nil {
		return fmt.Errorf("begin segment %d of the quorum log: %w", h.sequence, err)
	}
	if err := errors.Join(file.Sync(), w.fs.SyncDir(w.dir)); err != nil {
		w.failed = fmt.Errorf("sync quorum log: %w", errors.Join(err, file.Close()))
		return w.failed
	}
	if w.file != nil {
		// Everything in it is synced and will not be read: nothing is lost.
		_ = w.file.Close()
	}
	w.segments = append(w.segments, walSegment{h.sequence, base.index})
	w.file, w.salt = file, h.salt
	w.position, w.capacity, w.allocated = int64(len(buf)), capacity, true
	w.nextFrame++
	w.last = base
	return nil
}

// writeNew creates a file with blocks up to capacity and writes its beginning.
// When that fails the file is removed again.
func (w *wal) writeNew(name string, beginning []byte, capacity int64) (vfs.File, error) {
	file, err := w.fs.Open(name, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return nil, err
	}
	if err = file.Allocate(0, capacity); err == nil {
		_, err = file.WriteAt(beginning, 0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), w.fs.Remove(name))
	}
	return file, nil
}

func (w *wal) nextSequence() uint64 {
	if len(w.segments) == 0 {
		return 1
	}
	return w.segments[len(w.segments)-1].sequence + 1
}

// reset begins the log anew after a snapshot that does not continue it: all
// entries so far are void. An error is final, unless the disk is full.
func (w *wal) reset(base entryID, hs hardState) error {
	if w.failed != nil {
		return w.failed
	}
	w.hard = hs
	if err := w.createSegment(base, 0); err != nil {
		return w.finalUnlessFull(err)
	}
	return w.prune(base.index)
}

// prune removes the oldest segments whose entries are all at or below index.
// The error may be ignored: the next prune tries again.
func (w *wal) prune(index uint64) error {
	for len(w.segments) > 1 && w.segments[1].base <= index {
		if err := w.fs.Remove(path.Join(w.dir, segmentName(w.segments[0].sequence))); err != nil {
			return fmt.Errorf("remove old segment of the quorum log: %w", err)
		}
		w.segments = w.segments[1:]
	}
	return nil
}

// close closes the file. Everything saved is synced already.
func (w *wal) close() error {
	if w.file == nil {
		return nil
	}
	file := w.file
	w.file = nil
	if err := file.Close(); err != nil {
		return fmt.Errorf("close quorum log: %w", err)
	}
	return nil
}
