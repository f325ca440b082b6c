package wire

// What the answers of a connection hold from the handling of their requests
// until they were sent is charged to a budget of its own, as requests are. What
// an answer will hold is known only when it was made, so a request takes a step
// before it is handled, and what the answer then holds is charged whatever the
// limits are. So the budget is overshot by the answers that are made at the same
// time, and a connection's bound by one answer.
const (
	// admitBytes is the step.
	admitBytes = 64 << 10
	// queuedBytes is what an answer in the queue and its request take at least.
	queuedBytes = 512
	// smallFrameBytes and smallHeldBytes are up to where a request whose answer
	// is small does not wait for memory: heartbeats must come through.
	smallFrameBytes = 4 << 10
	smallHeldBytes  = 64 << 10
	// earlyPollBytes is from where on the long polls of a connection are answered
	// at once while others wait for memory.
	earlyPollBytes = 64 << 10
)

// Charge says that the answer to the request holds n bytes more from now on until
// it was encoded. The connection is not read while its answers hold too much. It
// is safe from any goroutine, and must not be called once the response is done.
func (r *Request) Charge(n int64) { r.Conn.out.charge(r, n) }

func (f *flusher) charge(req *Request, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.settled {
		req.held += n
		f.holdLocked(n)
	}
}

// holdLocked adds n, which may be negative, to what the connection's answers
// hold.
func (f *flusher) holdLocked(n int64) {
	f.held += n
	b, h := &f.conn.server.answers, &f.conn.client.answers
	switch {
	case n > 0:
		b.force(h, n)
	case n < 0:
		b.give(h, -n)
		f.changedLocked()
	}
}

// uncharge ends what a request's answer held.
func (f *flusher) uncharge(req *Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unchargeLocked(req)
}

func (f *flusher) unchargeLocked(req *Request) {
	n := req.held
	req.held = 0
	f.holdLocked(-n)
}

// noteWriter charges what was encoded and not sent. The caller has the role.
func (f *flusher) noteWriter() {
	var n int64
	if f.w != nil {
		n = f.w.heldBytes()
	}
	if n == f.writerHeld {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holdLocked(n - f.writerHeld)
	f.writerHeld = n
}

// settle ends all charges of a connection that is gone. Whoever comes with
// another one comes too late.
func (f *flusher) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = true
	f.holdLocked(-f.held)
}

// holds returns what the connection's answers hold.
func (f *flusher) holds() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// admit waits until there is memory for the answer to a request, and takes a
// step of it, which dismiss gives back.
func (r *reader) admit(api API, frameBytes int) error {
	c := r.conn
	b, h := &c.server.answers, &c.client.answers
	switch {
	case b.takeNow(h, admitBytes):
		return nil
	case api.Small && frameBytes <= smallFrameBytes && c.out.holds() < smallHeldBytes:
		b.force(h, admitBytes)
		return nil
	}
	r.flush()
	return r.waitForMemory(func() (bool, error) { return b.take(h, nil, admitBytes, c.quit), nil })
}

// dismiss gives back what admit took.
func (r *reader) dismiss() {
	r.conn.server.answers.give(&r.conn.client.answers, admitBytes)
}
