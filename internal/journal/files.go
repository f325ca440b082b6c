package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/vfs"
)

const (
	fileSuffix = ".journal"
	newSuffix  = ".new" // A file that is not yet whole.

	// firstFileBytes is the length of a journal's first two files: ready
	// soon, and all that a small broker ever needs. Every further one is four
	// times as long as all before together, up to Options.FileBytes.
	firstFileBytes = 4 << 20
	minFileBytes   = 16 * blockBytes
	// reserveBytes at the end of a file are kept for the frames without
	// entries that a release and a Reset write.
	reserveBytes = 4 * blockBytes
	// Zeroing writes zeroBytes and rests for zeroRest. Flat out it would make
	// every sync on the same disk five times slower meanwhile.
	zeroBytes = 64 << 10
	zeroRest  = 2 * time.Millisecond
	// Files after the first two are made because much comes in: faster.
	hastyBytes = 256 << 10
	// Without a rest, and urgentBytes at a time, go the files for want of
	// which a frame found no room: syncs are slow already then.
	urgentBytes = 1 << 20
)

// file is one journal file.
type file struct {
	name      string
	handle    vfs.File
	version   uint16
	sizeBytes int64
	// position is where the next frame goes. The committer changes it, under
	// fileSet.mu.
	position int64
	// firstSequence is of the first frame in the file's present use, and
	// lastSequence of the last.
	firstSequence, lastSequence uint64
	// logs have entries in the file. The committer adds to it while the file
	// is current, the recycler reads it afterwards.
	logs []*logState
}

// fileSet is the journal's files and what each is used for. A file goes
// round: free -> current -> full -> free.
type fileSet struct {
	fs  vfs.FS
	dir string
	opt Options

	mu      sync.Mutex // Guards what follows.
	current *file      // nil before the first file is there.
	full    []*file    // Oldest first.
	free    []*file
	next    int // Number of the next file to be made.
	// journalID is in every frame, so that no other bytes pass for one.
	journalID uint64
	// neededFrom is the first frame that a replay needs. Invariant: all
	// entries before it are in their logs' own files, durably.
	neededFrom uint64
	// starved says that a frame found no room: making a file is urgent.
	starved bool
	closed  bool
}

func newFileSet(fsys vfs.FS, dir string, opt Options) *fileSet {
	return &fileSet{fs: fsys, dir: dir, opt: opt, neededFrom: 1}
}

func (s *fileSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked()
}

func (s *fileSet) countLocked() int {
	n := len(s.full) + len(s.free)
	if s.current != nil {
		n++
	}
	return n
}

// ready reports whether the journal may be written to. It takes two files: one
// can always be recycled while the other has room, also on a full disk.
func (s *fileSet) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked() >= 2
}

// wanting reports whether the recycler has something to do: no file is free,
// or a frame found no room.
func (s *fileSet) wanting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked() < 2 ||
		s.starved && s.countLocked() < s.opt.MaxFiles ||
		len(s.free) == 0 && len(s.full) > 0
}

// isStarved reports whether a frame found no room since the last file was made.
func (s *fileSet) isStarved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starved
}

// bytesLocked returns the length of all files together.
func (s *fileSet) bytesLocked() int64 {
	var n int64
	for _, f := range slices.Concat(s.full, s.free) {
		n += f.sizeBytes
	}
	if s.current != nil {
		n += s.current.sizeBytes
	}
	return n
}

// prepare makes another file of zeros and adds it to the free ones, unless ctx
// ends before. It runs beside the committer: zeroing goes past the page cache,
// in small writes.
func (s *fileSet) prepare(ctx context.Context) error {
	s.mu.Lock()
	number, size := s.next, min(s.opt.FileBytes, firstFileBytes)
	if s.countLocked() >= 2 {
		size = min(s.opt.FileBytes, 4*s.bytesLocked())
	}
	s.next++
	id := s.journalID
	s.mu.Unlock()
	if id == 0 {
		var err error
		if id, err = drawID(s.opt.Random); err != nil {
			return err
		}
	}
	name := path.Join(s.dir, fmt.Sprintf("%08d%s", number, fileSuffix))
	f, err := s.create(ctx, name, fileHeader{fileVersion, id, size})
	if err != nil {
		return fmt.Errorf("prepare journal file %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return f.handle.Close()
	}
	s.journalID, s.starved = id, false
	s.free = append(s.free, f)
	return nil
}

func drawID(random io.Reader) (uint64, error) {
	var b [8]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("draw a journal id: %w", err)
		}
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id, nil
		}
	}
}

// create writes a whole file under a temporary name and gives it its name once
// it is durable: a file with the right name always has a header.
func (s *fileSet) create(ctx context.Context, name string, h fileHeader) (*file, error) {
	f, err := s.fs.Open(name+newSuffix, vfs.ReadWrite|vfs.Create|vfs.Truncate|vfs.Direct)
	if err != nil {
		return nil, err
	}
	err = s.writeEmpty(ctx, f, h)
	if err == nil {
		err = s.fs.Rename(name+newSuffix, name)
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		// Give the space back at once; the disk may be full.
		return nil, errors.Join(err, f.Close(), s.removeIfThere(name+newSuffix))
	}
	return &file{
		name: name, handle: f, version: fileVersion, sizeBytes: h.sizeBytes, position: blockBytes,
	}, nil
}

func (s *fileSet) writeEmpty(ctx context.Context, f vfs.File, h fileHeader) error {
	if err := f.Allocate(0, h.sizeBytes); err != nil {
		return err
	}
	zeros := alignedBytes(int(min(urgentBytes, h.sizeBytes)))
	for at := int64(0); at < h.sizeBytes; {
		n := min(int64(len(zeros)), h.sizeBytes-at)
		switch {
		case s.isStarved():
		case h.sizeBytes > firstFileBytes:
			n = min(n, hastyBytes)
		default:
			n = min(n, zeroBytes)
		}
		if _, err := f.WriteAt(zeros[:n], at); err != nil {
			return err
		}
		at += n
		if err := s.rest(ctx); err != nil {
			return err
		}
	}
	h.put(zeros)
	if _, err := f.WriteAt(zeros[:blockBytes], 0); err != nil {
		return err
	}
	return f.Sync()
}

// rest leaves the disk to others for a moment, unless the file is urgent.
func (s *fileSet) rest(ctx context.Context) error {
	if s.isStarved() {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(zeroRest):
		return nil
	}
}

func (s *fileSet) removeIfThere(name string) error {
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// room returns how long a frame may be in the current file and in a free one,
// where n bytes are wanted.
func (s *fileSet) room(n int) (current, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		current = int(min(s.current.sizeBytes-reserveBytes-s.current.position, maxFrameBytes))
	}
	for _, f := range s.free {
		free = max(free, int(min(f.sizeBytes-reserveBytes-blockBytes, maxFrameBytes)))
	}
	if max(current, free) < min(n, maxFrameBytes) {
		s.starved = true
	}
	return current, free
}

// candidate returns the current file and a free one that has room for a frame
// of n bytes; each may be nil.
func (s *fileSet) candidate(n int) (current, free *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		if f.sizeBytes-reserveBytes-blockBytes >= int64(n) {
			return s.current, f
		}
	}
	return s.current, nil
}

// take makes a free file current; its first frame will have the sequence.
func (s *fileSet) take(f *file, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = slices.DeleteFunc(s.free, func(other *file) bool { return other == f })
	if s.current != nil {
		s.full = append(s.full, s.current)
	}
	f.position, f.firstSequence, f.lastSequence, f.logs = blockBytes, sequence, 0, f.logs[:0]
	s.current, s.starved = f, false
}

// release makes the files free, after all their entries have become durable
// elsewhere, and moves neededFrom. The files are the oldest full ones.
func (s *fileSet) release(files []*file, nextSequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = slices.Clone(s.full[len(files):])
	for _, f := range files {
		clear(f.logs)
		f.logs = f.logs[:0]
	}
	s.free = append(s.free, files...)
	switch {
	case len(s.full) > 0:
		s.neededFrom = s.full[0].firstSequence
	case s.current != nil:
		s.neededFrom = s.current.firstSequence
	default:
		s.neededFrom = nextSequence
	}
}

func (s *fileSet) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	all := slices.Concat(s.full, s.free)
	if s.current != nil {
		all = append(all, s.current)
	}
	var errs []error
	for _, f := range all {
		errs = append(errs, f.handle.Close())
	}
	s.current, s.full, s.free = nil, nil, nil
	return errors.Join(errs...)
}
