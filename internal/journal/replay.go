package journal

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline/strandline/internal/vfs"
)

// frame is a whole frame found on disk.
type frame struct {
	file     *file
	position int64
	frameHeader
}

// end returns the position after the frame's padding.
func (f frame) end() int64 { return f.position + int64(padded(f.length)) }

// orphan is a whole frame behind bytes that are none.
type orphan struct {
	file     *file
	brokenAt int64
	sequence uint64
}

// scan reads all files and decides what is needed, what is current and what is
// free. See the package documentation for why this is right after any crash.
func (j *Journal) scan() error {
	files, err := j.openFiles()
	if err != nil {
		return err
	}
	var frames []frame
	var orphans []orphan
	stretch := 0
	for _, f := range files {
		stretch++
		found, lost, err := j.scanFile(f, &stretch)
		if err != nil {
			return err
		}
		frames = append(frames, found...)
		orphans = append(orphans, lost...)
		if len(found) > 0 {
			f.firstSequence = found[0].sequence
			f.lastSequence = found[len(found)-1].sequence
			f.position = found[len(found)-1].end()
		}
	}
	slices.SortFunc(frames, func(a, b frame) int { return cmp.Compare(a.sequence, b.sequence) })
	var last uint64
	if len(frames) > 0 {
		last = frames[len(frames)-1].sequence
	}
	for _, o := range orphans {
		if o.sequence > last {
			return &CorruptionError{o.file.name, o.brokenAt, fmt.Sprintf(
				"no frame here, but the later frame %d is whole, and the last before is %d", o.sequence, last)}
		}
	}
	needed, err := neededFrames(frames)
	if err != nil {
		return err
	}
	for _, h := range j.histories {
		h.settle(neededFrom(needed))
	}
	j.adopt(files, needed)
	if err := j.files.syncFound(); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	return nil
}

// syncFound makes durable what Open found: a kill may have come between the newest
// frame and its sync, or between a file's name and the directory's. All of it would
// be gone after a loss of power, and with it what is done on the strength of it.
func (s *fileSet) syncFound() error {
	if cur := s.current; cur != nil {
		if err := cur.handle.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", cur.name, err)
		}
	}
	return s.fs.SyncDir(s.dir)
}

// openFiles opens the journal's files and checks that they belong together.
func (j *Journal) openFiles() ([]*file, error) {
	s := j.files
	list, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var files []*file
	for _, d := range list {
		base, ok := strings.CutSuffix(d.Name(), fileSuffix)
		number, err := strconv.Atoi(base)
		if !ok || err != nil {
			continue // A file that was never finished; its number is used again.
		}
		f, id, err := s.open(path.Join(s.dir, d.Name()))
		if err != nil {
			return nil, err
		}
		s.free = append(s.free, f) // So that close finds it.
		if s.journalID != 0 && id != s.journalID {
			return nil, &CorruptionError{f.name, 16, "it belongs to another journal"}
		}
		s.journalID, s.next = id, max(s.next, number+1)
		files = append(files, f)
	}
	return files, nil
}

func (s *fileSet) open(name string) (*file, uint64, error) {
	handle, err := s.fs.Open(name, vfs.ReadWrite|vfs.Direct)
	if err != nil {
		return nil, 0, fmt.Errorf("open journal file: %w", err)
	}
	f := &file{name: name, handle: handle, position: blockBytes}
	h, err := f.readHeader()
	if err != nil {
		_ = handle.Close()
		return nil, 0, err
	}
	f.sizeBytes, f.version = h.sizeBytes, h.version
	return f, h.journalID, nil
}

func (f *file) readHeader() (fileHeader, error) {
	size, err := f.handle.Size()
	if err != nil {
		return fileHeader{}, fmt.Errorf("size of journal file %s: %w", f.name, err)
	}
	w := window{file: f.handle, size: size}
	b, err := w.bytes(0, int(min(size, blockBytes)))
	if err != nil {
		return fileHeader{}, fmt.Errorf("read journal file %s: %w", f.name, err)
	}
	h, err := parseFileHeader(f.name, b)
	if err == nil && (h.sizeBytes != size || size%blockBytes != 0 || size < minFileBytes) {
		err = &CorruptionError{f.name, 24, fmt.Sprintf("%d bytes long, should be %d", size, h.sizeBytes)}
	}
	return h, err
}

// scanFile reads the frames at the beginning of a file, and looks as far
// behind them as the next could reach for one that should not be there.
func (j *Journal) scanFile(f *file, stretch *int) ([]frame, []orphan, error) {
	w := window{file: f.handle, size: f.sizeBytes}
	var found []frame
	at := int64(blockBytes)
	for {
		fr, b, err := j.readFrame(&w, f, at)
		if err != nil {
			return nil, nil, err
		}
		if b == nil || len(found) > 0 && fr.sequence != found[len(found)-1].sequence+1 {
			break
		}
		if n := len(found); n > 0 && found[n-1].neededFrom != fr.neededFrom {
			*stretch++
		}
		if err := j.noteEntries(fr, b, *stretch); err != nil {
			return nil, nil, err
		}
		found = append(found, fr)
		at = fr.end()
	}
	var lost []orphan
	brokenAt := at
	for ; at < min(f.sizeBytes, brokenAt+maxFrameBytes+blockBytes); at += blockBytes {
		fr, b, err := j.readFrame(&w, f, at)
		if err != nil {
			return nil, nil, err
		}
		if b != nil {
			lost = append(lost, orphan{f, brokenAt, fr.sequence})
		}
	}
	return found, lost, nil
}

// readFrame returns the whole frame at a position, or nil bytes if there is
// none.
func (j *Journal) readFrame(w *window, f *file, at int64) (frame, []byte, error) {
	if at+blockBytes > f.sizeBytes {
		return frame{}, nil, nil
	}
	b, err := w.bytes(at, blockBytes)
	if err != nil {
		return frame{}, nil, fmt.Errorf("read journal file %s: %w", f.name, err)
	}
	h, ok := parseFrameHeader(b)
	if !ok || h.journalID != j.files.journalID || at+int64(padded(h.length)) > f.sizeBytes {
		return frame{}, nil, nil
	}
	if b, err = w.bytes(at, padded(h.length)); err != nil {
		return frame{}, nil, fmt.Errorf("read journal file %s: %w", f.name, err)
	}
	if b = b[:h.length]; !checkFrame(b) {
		return frame{}, nil, nil
	}
	return frame{f, at, h}, b, nil
}

// walk calls fn with the entries of a frame.
func (f frame) walk(b []byte, fn func(index int, e Entry) error) error {
	rest := b[frameHeaderSize:]
	for i := range f.count {
		e, after, err := nextEntry(rest)
		if err != nil {
			return &CorruptionError{f.file.name, f.position, err.Error()}
		}
		if err := fn(i, e); err != nil {
			return err
		}
		rest = after
	}
	if len(rest) > 0 {
		return &CorruptionError{f.file.name, f.position, "bytes after the last entry"}
	}
	return nil
}

// noteEntries remembers what the entries of a frame say of their logs.
func (j *Journal) noteEntries(f frame, b []byte, stretch int) error {
	return f.walk(b, func(i int, e Entry) error {
		h := j.histories[e.ID]
		if h == nil {
			h = &history{}
			j.histories[e.ID] = h
		}
		h.note(mark{f.sequence, i}, e, stretch)
		return nil
	})
}

// neededFrames returns the frames that a replay needs, of all in order. It is
// an error if one is missing.
func neededFrames(frames []frame) ([]frame, error) {
	if len(frames) == 0 {
		return nil, nil
	}
	last := frames[len(frames)-1]
	from, _ := slices.BinarySearchFunc(frames, last.neededFrom, func(f frame, sequence uint64) int {
		return cmp.Compare(f.sequence, sequence)
	})
	needed := frames[from:]
	want := last.neededFrom
	for _, f := range needed {
		if f.sequence != want {
			return nil, &CorruptionError{f.file.name, f.position, fmt.Sprintf(
				"frame %d is here where %d is next; frames from %d to %d are needed",
				f.sequence, want, last.neededFrom, last.sequence)}
		}
		want++
	}
	return needed, nil
}

// neededFrom returns the first of the needed frames.
func neededFrom(needed []frame) uint64 {
	if len(needed) == 0 {
		return 0
	}
	return needed[0].sequence
}

// adopt takes the files over in the roles they had.
func (j *Journal) adopt(files []*file, needed []frame) {
	s := j.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(needed) == 0 {
		s.neededFrom = 1
		return // All are free, and never used.
	}
	last := needed[len(needed)-1]
	s.free, s.current, s.neededFrom = nil, last.file, last.neededFrom
	for _, f := range files {
		switch {
		case f == s.current:
		case f.lastSequence >= s.neededFrom:
			s.full = append(s.full, f)
		default:
			s.free = append(s.free, f)
		}
	}
	slices.SortFunc(s.full, func(a, b *file) int { return cmp.Compare(a.firstSequence, b.firstSequence) })
	j.writtenSequence.Store(last.sequence)
	j.stamped = last.neededFrom
	for _, f := range needed {
		if f.count > 0 {
			j.recovered = append(j.recovered, f)
		}
	}
	j.entries = len(j.recovered) > 0
}

// Replay calls fn with every entry that may not be in its log's own files, in
// the order in which they were written. An Append below the end of its log is
// in the log already and to be skipped, unless the log has other bytes in its
// place: those are of an earlier crash, and to be cut off. One at the end is to
// be appended again.
// Replay changes nothing and may be called again, before Run.
func (j *Journal) Replay(fn func(Entry) error) error {
	j.live = nil
	for _, h := range j.histories {
		h.live = nil
	}
	var live []*liveEntry
	err := j.walkRecovered(func(f frame, i int, e Entry) error {
		h := j.histories[e.ID]
		live = h.noteLive(live, f, e)
		if e.Kind > Truncate || h.drops(mark{f.sequence, i}, e) {
			return nil
		}
		return fn(e)
	})
	if err != nil {
		return fmt.Errorf("replay journal: %w", err)
	}
	j.live = live
	return nil
}

// walkRecovered reads what was recovered again and calls fn with every entry.
func (j *Journal) walkRecovered(fn func(f frame, index int, e Entry) error) error {
	var w window // One for all frames of a file: it reads ahead.
	for _, f := range j.recovered {
		if w.file != f.file.handle {
			w = window{file: f.file.handle, size: f.file.sizeBytes, buf: w.buf}
		}
		b, err := w.bytes(f.position, padded(f.length))
		if err != nil {
			return fmt.Errorf("read journal file %s: %w", f.file.name, err)
		}
		err = f.walk(b[:f.length], func(i int, e Entry) error { return fn(f, i, e) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Reset drops all entries, after their logs' own files have been synced: a
// replay will begin with what comes next. It is called while Run is not
// running, and refused after a failure.
func (j *Journal) Reset() error {
	j.mu.Lock()
	failure := j.failure
	j.mu.Unlock()
	if failure != nil && !errors.Is(failure, ErrClosed) {
		return fmt.Errorf("reset journal: %w", failure) // What is durable is unknown.
	}
	if err := j.dropEntries(); err != nil {
		return fmt.Errorf("reset journal: %w", err)
	}
	if err := j.files.renewHeaders(); err != nil {
		return fmt.Errorf("reset journal: %w", err)
	}
	return nil
}

// dropEntries writes a frame before which nothing is needed.
func (j *Journal) dropEntries() error {
	if !j.entries {
		return nil
	}
	h := j.nextFrame()
	h.neededFrom = h.sequence
	if cur := j.files.current; cur.position+blockBytes > cur.sizeBytes {
		return fmt.Errorf("%s has no room", cur.name)
	}
	if err := j.writeEmptyFrame(h); err != nil {
		return err
	}
	j.files.current.firstSequence = h.sequence
	j.files.current.logs = nil
	j.files.release(j.files.snapshotFull(), h.sequence+1)
	j.recovered, j.live, j.entries = nil, nil, false
	clear(j.histories)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.states {
		s.raiseSynced(h.sequence)
		s.staged, s.truncated, s.fileFirst = false, 0, 0
	}
	return nil
}

// renewHeaders gives files of an older version the present one: what is written
// to them from now on has it. Nothing in them is needed.
func (s *fileSet) renewHeaders() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var block []byte
	for _, f := range slices.Concat(s.full, s.free, []*file{s.current}) {
		if f == nil || f.version == fileVersion {
			continue
		}
		if block == nil {
			block = alignedBytes(blockBytes)
		}
		fileHeader{fileVersion, s.journalID, f.sizeBytes}.put(block)
		if _, err := f.handle.WriteAt(block, 0); err != nil {
			return fmt.Errorf("write header of %s: %w", f.name, err)
		}
		if err := f.handle.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", f.name, err)
		}
		f.version = fileVersion
	}
	return nil
}

// window reads a Direct file through an aligned buffer.
type window struct {
	file  vfs.File
	size  int64
	buf   []byte
	start int64
	n     int
}

const windowBytes = 256 << 10

// bytes returns n bytes at a position, both multiples of a block or the file's
// end. They are valid until the next call.
func (w *window) bytes(at int64, n int) ([]byte, error) {
	if at < w.start || at+int64(n) > w.start+int64(w.n) {
		want := int(min(w.size-at, int64(max(n, windowBytes))))
		if len(w.buf) < padded(want) {
			w.buf = alignedBytes(padded(want))
		}
		w.n = 0
		got, err := w.file.ReadAt(w.buf[:padded(want)], at)
		if got < n {
			return nil, fmt.Errorf("%d bytes at %d: %w", n, at, err)
		}
		w.start, w.n = at, got
	}
	from := int(at - w.start)
	return w.buf[from : from+n : from+n], nil
}
