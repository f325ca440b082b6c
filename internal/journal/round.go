package journal

import (
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// maxRoundBytes bounds what one round may stage. Memory is touched only as far
// as rounds have filled it: kilobytes, but for the round after a hiccup of the
// disk. It is large because the way out of it is dear with many logs: where
// syncing a thousand files takes 0.1 s, 10 MB come in meanwhile at 100 MB/s, and
// a smaller buffer would be too small again, round after round.
const maxRoundBytes = 16 << 20

// maxFrameBytes bounds a frame; a longer round becomes several.
const maxFrameBytes = 8 << 20

// maxMarkBytes bounds the entries without data of one round.
const maxMarkBytes = 1 << 20

// logState is what the journal remembers of a log.
type logState struct {
	log Log
	id  kafka.TopicIDPartition

	// Where the log is in the round being filled; guarded by Journal.mu.
	round uint64
	slot  int

	// lastSequence is the newest frame with an entry of the log, and
	// syncedSequence a frame up to which all of the log's entries are in its
	// own files, durably.
	lastSequence   atomic.Uint64
	syncedSequence atomic.Uint64
	// truncated is the newest frame with a Truncate that no later synced entry
	// follows. Only the committer touches it.
	truncated uint64
	// unwritten are the bytes journaled since the last StartWriteback. Only the
	// committer touches it.
	unwritten int
	// fileFirst is the first frame of the newest file with an entry of the
	// log, in that file's present use. Only the committer touches it.
	fileFirst uint64
	// note is how far its own files are durable as far as no frame says so yet,
	// or NoOffset. Only the committer touches it.
	note   kafka.Offset
	staged bool        // Something of it was ever staged; guarded by Journal.mu.
	gone   atomic.Bool // Forget was called.
}

// item is the part of one log in one round.
type item struct {
	state *logState
	end   kafka.Offset // Everything below is to be durable, if wanted.
	bytes int          // Appended in this round, staged or not.
	// wanted says that Durable(end) is owed.
	wanted bool
	// syncFiles says that the log's own files are to be synced, because not
	// everything it appended was staged.
	syncFiles bool
	appends   int  // Staged entries that are an Append.
	marked    bool // Others were staged.
	// cut is the least offset to which the log was truncated, if truncated.
	cut       kafka.Offset
	truncated bool
}

// staged is one entry in a round's buffer.
type staged struct {
	position int
	slot     int
	kind     Kind
}

// round gathers what happens between two commits. Two of them take turns: one
// is filled under Journal.mu, the other belongs to the committer.
type round struct {
	number uint64
	bytes  int    // Appended, staged or not.
	wishes int    // How often somebody asked for durability.
	buf    []byte // Aligned for O_DIRECT; the first frameHeaderSize bytes are kept free.
	n      int    // Bytes used of buf.
	// markBytes are staged entries that are no Append. They are few by far:
	// the limit keeps them below what the shortest file takes.
	markBytes int
	entries   []staged
	items     []item
	waiters   []chan<- error // Of Truncate.
	// stage says whether appends may be staged: a file is ready to take them.
	stage    bool
	signaled bool
	// syncAbove is how much a log may append before its own files are synced.
	syncAbove int
}

func newRound(sizeBytes int) *round {
	return &round{buf: alignedBytes(sizeBytes), n: frameHeaderSize}
}

// alignedBytes returns zeroed memory as a Direct file needs it.
func alignedBytes(n int) []byte {
	b := make([]byte, n+vfs.DirectAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (vfs.DirectAlign - 1)
	return b[skip : skip+n : skip+n]
}

// reset makes the round ready to be filled again.
func (r *round) reset(number uint64) {
	r.number, r.n, r.bytes, r.wishes, r.markBytes = number, frameHeaderSize, 0, 0, 0
	r.stage, r.signaled = false, false
	clear(r.items) // Drop the references to logs.
	clear(r.waiters)
	r.items, r.entries, r.waiters = r.items[:0], r.entries[:0], r.waiters[:0]
}

// item returns the log's part of the round.
func (r *round) item(s *logState) *item {
	if s.round != r.number {
		s.round, s.slot = r.number, len(r.items)
		r.items = append(r.items, item{state: s})
	}
	return &r.items[s.slot]
}

// maybeStage copies an Append into the buffer, if there is room.
func (r *round) maybeStage(it *item, e Entry) bool {
	if !r.maybePut(it.state.slot, e) {
		return false
	}
	it.appends++
	it.state.staged = true
	return true
}

// maybeStageMark stages an entry without data that cannot be left out. If the
// buffer is full, the logs whose appends fill it get their own files synced
// instead; it reports false if it is full of marks.
func (r *round) maybeStageMark(it *item, e Entry) bool {
	if len(r.buf)-r.n < entryHeaderSize {
		r.syncStagedFiles(0)
	}
	it.marked = true
	return r.maybeMark(it.state.slot, e)
}

func (r *round) maybeMark(slot int, e Entry) bool {
	if r.markBytes+entryHeaderSize > min(maxMarkBytes, len(r.buf)/2) || !r.maybePut(slot, e) {
		return false
	}
	r.markBytes += entryHeaderSize
	return true
}

func (r *round) maybePut(slot int, e Entry) bool {
	size := entryHeaderSize + len(e.Data)
	if size > len(r.buf)-r.n {
		return false
	}
	at := r.buf[r.n : r.n+size]
	putEntryHeader(at, e)
	copy(at[entryHeaderSize:], e.Data)
	r.entries = append(r.entries, staged{r.n, slot, e.Kind})
	r.n += size
	return true
}

// dropNotes removes the notes among the entries from one on: they can wait. They
// were staged last.
func (r *round) dropNotes(from int) {
	for i := from; i < len(r.entries); i++ {
		if r.entries[i].kind == filesSynced {
			r.n, r.entries = r.entries[i].position, r.entries[:i]
			return
		}
	}
}

// syncStagedFiles has the own files of all logs synced that staged appends
// after the first from entries, and drops those.
func (r *round) syncStagedFiles(from int) {
	for _, e := range r.entries[from:] {
		if e.kind == Append {
			r.items[e.slot].syncFiles = true
		}
	}
	r.dropAppends(from)
}

// end returns the position in the buffer after the first n entries.
func (r *round) end(n int) int {
	if n < len(r.entries) {
		return r.entries[n].position
	}
	return r.n
}

// fit returns up to which entry those after the first from make a frame of at
// most limit bytes.
func (r *round) fit(from, limit int) int {
	limit += r.end(from) - frameHeaderSize
	return from + sort.Search(len(r.entries)-from, func(i int) bool { return r.end(from+i+1) > limit })
}

// frameBytes returns the length of a frame of the entries from one to another,
// padding included.
func (r *round) frameBytes(from, to int) int {
	return padded(frameHeaderSize + r.end(to) - r.end(from))
}

// dropAppends removes the staged appends, but for those among the first from
// entries, of logs whose own files are going to be synced: a log's round is
// durable in one place, and the frame is shorter.
func (r *round) dropAppends(from int) {
	if !slices.ContainsFunc(r.items, func(it item) bool { return it.syncFiles && it.appends > 0 }) {
		return
	}
	// What is kept of the entries overwrites them, but never one not yet read.
	kept, n := r.entries[:from], r.end(from)
	for i := from; i < len(r.entries); i++ {
		e, end := r.entries[i], r.end(i+1)
		if e.kind == Append && r.items[e.slot].syncFiles {
			r.items[e.slot].appends--
			continue
		}
		size := copy(r.buf[n:], r.buf[e.position:end])
		kept = append(kept, staged{n, e.slot, e.kind})
		n += size
	}
	r.entries, r.n = kept, n
}

// seal turns the entries from one to another into a frame and returns it with
// its padding: in place if they are all there are, else in other memory.
func (r *round) seal(h frameHeader, from, to int) []byte {
	buf, n := r.buf, r.n
	if from > 0 || to < len(r.entries) {
		n = frameHeaderSize + r.end(to) - r.end(from)
		buf = alignedBytes(padded(n))
		copy(buf[frameHeaderSize:], r.buf[r.end(from):r.end(to)])
	}
	end := padded(n)
	clear(buf[n:end])
	h.count = to - from
	h.put(buf[:n])
	return buf[:end]
}
