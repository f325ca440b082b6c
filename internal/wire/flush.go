package wire

import (
	"errors"
	"sync"
	"time"
)

// pending is an answer that waits for its turn.
type pending struct {
	req  *Request
	resp Response
}

// flusher holds the answers of a connection and sends them in order.
//
// At any time at most one goroutine has the flusher's role: it asks the first
// response whether it is done, encodes it, and writes. Three can take it:
//
//   - the read loop, by kick, after it queued an answer. It writes as much as the
//     socket takes at once and never waits for the client;
//   - the write loop, to which wake gives the role, and which may wait;
//   - the connection's end, by close, for good.
//
// Whoever finds the role taken leaves a note (again), which the holder reads
// before it gives the role up. So a wake is never lost, and there is at most one
// pending signal to the write loop, which a channel of one slot holds.
type flusher struct {
	conn *Conn

	mu    sync.Mutex
	queue queue
	taken bool // Somebody has the role.
	again bool // Look at the queue once more before giving it up.
	stop  bool // Stop waiting for what may never come, and close when empty.
	// closing says that the connection is dead: the role is wanted by close.
	closing bool
	// held is what the answers hold that were not sent; settled says that this
	// is not counted any more.
	held    int64
	settled bool
	// changed is signalled, if somebody waits, when the role was given up or an
	// answer left the queue.
	changed chan struct{}
	waiting bool

	// What follows belongs to the holder of the role.
	w          *Writer
	writerHeld int64 // What of held is w's.
	inline     bool  // The holder must not wait for the socket.
	blocked    bool  // The socket took no more, and the holder did not wait.
	writeErr   error
	discard    bool
	encodeErr  error // Ends the connection once what came before was sent.
	alarm      alarm
	loop       chan struct{} // Signals the write loop, nil before its start.
	loopDone   chan struct{}
	// writable is writeSocket as a value, made once.
	writable func(fd uintptr) bool
}

func (f *flusher) init() { f.changed = make(chan struct{}, 1) }

// push queues an answer. It reports whether the queue is full now.
func (f *flusher) push(req *Request, resp Response) (full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue.push(pending{req, resp})
	req.held += queuedBytes
	f.holdLocked(queuedBytes)
	return !f.hasSpace()
}

// hasSpace reports whether another answer may be queued. The caller holds mu.
func (f *flusher) hasSpace() bool {
	l := f.conn.server.limits.Load()
	return f.queue.len() < l.MaxPipelined && f.held < l.MaxUnsentBytes
}

// kick sends what is ready, as far as that needs no waiting.
func (f *flusher) kick() {
	if !f.take() {
		return
	}
	if f.conn.raw == nil {
		f.signal()
		return
	}
	f.inline = true
	f.flush()
}

// wake has the write loop send what is ready.
func (f *flusher) wake() {
	if f.take() {
		f.signal()
	}
}

// take takes the role, or leaves a note for its holder.
func (f *flusher) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closing || f.queue.len() == 0:
		return false
	case f.taken:
		f.again = true
		return false
	}
	f.taken = true
	return true
}

// yield gives the role up, unless somebody left a note.
func (f *flusher) yield() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again && !f.closing {
		f.again = false
		return false
	}
	f.taken, f.again = false, false
	f.changedLocked()
	return true
}

func (f *flusher) changedLocked() {
	if f.waiting {
		f.waiting = false
		f.changed <- struct{}{}
	}
}

// signal passes the role to the write loop, which it starts on first use.
func (f *flusher) signal() {
	if f.loop == nil {
		f.loop, f.loopDone = make(chan struct{}, 1), make(chan struct{})
		// Owned by the connection: close ends it and waits.
		go f.writeLoop()
	}
	f.loop <- struct{}{}
}

func (f *flusher) writeLoop() {
	defer close(f.loopDone)
	for range f.loop {
		f.inline = false
		f.flush()
	}
}

// flush sends what is ready. The caller has the role, and has lost it when flush
// returns.
func (f *flusher) flush() {
	for {
		f.encodeReady()
		if f.w != nil && !f.w.empty() {
			if f.send(); f.blocked {
				f.blocked = false
				f.noteWriter()
				f.signal()
				return
			}
			continue
		}
		f.dropWriter()
		if f.encodeErr != nil {
			f.fail(&closeError{ClosedResponse, f.encodeErr})
			f.encodeErr = nil
			continue
		}
		if f.yield() {
			return
		}
	}
}

// encodeReady encodes answers from the head of the queue on, while they are
// done and a batch is not full.
func (f *flusher) encodeReady() {
	for f.encodeErr == nil && (f.w == nil || f.w.pendingBytes < batchBytes) {
		p, hurry, ok := f.head()
		if !ok || !f.ready(p, hurry) {
			return
		}
		if f.w == nil {
			f.w = f.conn.server.takeWriter()
			f.w.discard = f.discard
		}
		f.w.begin(p.req.CorrelationID, p.req.flexible)
		size, err := f.w.finish(p.resp.Encode(f.w))
		f.encodeErr = err
		f.pop(p.req)
		f.finished(p.req, size, f.discard)
	}
}

// head returns the first answer, and whether a long poll is to end early.
func (f *flusher) head() (p pending, hurry, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok = f.queue.first()
	hurry = f.stop || f.held >= earlyPollBytes && f.conn.server.pressed.Load()
	return p, hurry, ok
}

// ready reports whether the response can be encoded now. If not, it arms the
// timer for its deadline.
func (f *flusher) ready(p pending, hurry bool) bool {
	if f.discard || p.resp.Done() || hurry && p.req.longPoll {
		return true
	}
	deadline := p.resp.Deadline()
	if deadline.IsZero() {
		return false
	}
	now := time.Now()
	left := deadline.Sub(now)
	if left <= 0 {
		return true
	}
	f.alarm.set(now, left, f.wake)
	return false
}

func (f *flusher) pop(req *Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue.pop()
	f.unchargeLocked(req)
	f.changedLocked()
}

// finished ends a request's life.
func (f *flusher) finished(req *Request, responseBytes int64, dropped bool) {
	req.Release()
	f.conn.server.noteAnswered(req)
	if done := f.conn.server.options.Events.RequestDone; done != nil {
		done(&RequestStats{
			Conn: f.conn, Key: req.Key, Version: req.Version,
			RequestBytes: int64(req.sizeBytes), ResponseBytes: responseBytes,
			Queued: req.queued, Handled: req.handled, Total: time.Since(req.Received),
			Dropped: dropped,
		})
	}
	f.conn.spare.put(req)
}

// send writes what was encoded.
func (f *flusher) send() {
	if f.discard {
		f.dropWriter()
		return
	}
	a := &f.conn.activity
	if !f.inline {
		f.noteWriter()
		a.writeSince.Store(f.conn.server.clock())
	}
	f.writeErr = nil
	var err error
	if f.conn.raw != nil {
		err = f.conn.raw.Write(f.writable)
	} else {
		err = f.w.sendConn(f.conn.net, func(n int64) { a.bytesOut.Add(n) })
	}
	if err = errors.Join(err, f.writeErr); err != nil {
		ce := &closeError{ClosedByPeer, err}
		errors.As(err, &ce)
		f.fail(ce)
	}
	if !f.blocked {
		a.writeSince.Store(0)
	}
}

// writeSocket writes what the socket takes. It is called by the poller, and
// returns false to be called again when the socket takes more.
func (f *flusher) writeSocket(fd uintptr) bool {
	n, err := f.w.sendTo(int(fd))
	f.conn.activity.bytesOut.Add(n)
	if errors.Is(err, errWouldBlock) {
		f.blocked = f.inline
		return f.inline
	}
	f.writeErr = err
	return true
}

// fail ends the connection; what was not sent and what comes is dropped.
func (f *flusher) fail(e *closeError) {
	f.conn.kill(e.reason, e.err)
	f.discard = true
	f.dropWriter()
}

func (f *flusher) dropWriter() {
	if f.w != nil {
		f.conn.server.returnWriter(f.w)
		f.w = nil
		f.noteWriter()
	}
}

// stopWaiting makes the connection answer what it has and say goodbye.
func (f *flusher) stopWaiting() {
	f.mu.Lock()
	f.stop = true
	f.mu.Unlock()
	f.wake()
}

func (f *flusher) stopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stop
}

// idle reports whether nothing waits to be sent.
func (f *flusher) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue.len() == 0 && !f.taken
}

// drain waits until everything queued was sent, or the connection is dead.
func (f *flusher) drain() {
	f.kick()
	f.wait(func() bool { return f.queue.len() == 0 && !f.taken })
}

// wait waits until cond, called with mu held, or until the connection is killed.
// Only the read loop calls it.
func (f *flusher) wait(cond func() bool) {
	for {
		f.mu.Lock()
		if cond() {
			f.mu.Unlock()
			return
		}
		f.waiting = true
		f.mu.Unlock()
		select {
		case <-f.changed:
		case <-f.conn.quit:
			f.mu.Lock()
			f.waiting = false
			f.mu.Unlock()
			select {
			case <-f.changed:
			default:
			}
			return
		}
	}
}

// close takes the role for good and drops what is left. The connection was
// killed, so whoever has the role is about to give it up.
func (f *flusher) close() {
	f.mu.Lock()
	f.closing = true
	for f.taken {
		f.waiting = true
		f.mu.Unlock()
		<-f.changed
		f.mu.Lock()
	}
	f.taken = true
	f.mu.Unlock()
	f.discard = true
	f.dropWriter()
	f.encodeReady()
	f.dropWriter()
	f.alarm.stop()
	if f.loop != nil {
		close(f.loop)
		<-f.loopDone
	}
	f.settle()
}
