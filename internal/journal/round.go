package journal

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// maxFrameBytes bounds what one round may stage. Memory is touched only as far
// as rounds have filled it.
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
	// unsettled are the bytes journaled since the last sync in the background.
	// Only the committer touches it.
	unsettled int
	// fileFirst is the first frame of the newest file with an entry of the
	// log, in that file's present use. Only the committer touches it.
	fileFirst uint64
	staged    bool        // Something of it was ever staged; guarded by Journal.mu.
	gone      atomic.Bool // Forget was called.
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
}

func newRound(frameBytes int) *round {
	return &round{buf: alignedBytes(frameBytes), n: frameHeaderSize}
}

// alignedBytes returns zeroed memory as a Direct file needs it.
func alignedBytes(n int) []byte {
	b := make([]byte, n+vfs.DirectAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (vfs.DirectAlign - 1)
	return b[skip : skip+n : skip+n]
}

// reset makes the round ready to be filled again.
func (r *round) reset(number uint64, stage bool) {
	r.number, r.n, r.stage, r.signaled = number, frameHeaderSize, stage, false
	r.markBytes = 0
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
		r.syncStagedFiles()
		r.dropAppends()
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

// syncStagedFiles has the own files of all logs synced that staged appends.
func (r *round) syncStagedFiles() {
	for i := range r.items {
		r.items[i].syncFiles = r.items[i].syncFiles || r.items[i].appends > 0
	}
}

// dropAppends removes the staged appends of logs whose own files are going to
// be synced: a log's round is durable in one place, and the frame is shorter.
func (r *round) dropAppends() {
	if !slices.ContainsFunc(r.items, func(it item) bool { return it.syncFiles && it.appends > 0 }) {
		return
	}
	kept, n := r.entries[:0], frameHeaderSize
	for i, e := range r.entries {
		if e.kind == Append && r.items[e.slot].syncFiles {
			r.items[e.slot].appends--
			continue
		}
		end := r.n
		if i+1 < len(r.entries) {
			end = r.entries[i+1].position
		}
		size := copy(r.buf[n:], r.buf[e.position:end])
		kept = append(kept, staged{n, e.slot, e.kind})
		n += size
	}
	r.entries, r.n = kept, n
}

// seal turns the staged entries into a frame and returns it with its padding.
func (r *round) seal(h frameHeader) []byte {
	end := padded(r.n)
	clear(r.buf[r.n:end])
	h.count = len(r.entries)
	h.put(r.buf[:r.n])
	return r.buf[:end]
}
