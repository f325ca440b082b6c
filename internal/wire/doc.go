// Package wire speaks the framing of the Kafka protocol: listeners, TLS, frames,
// request headers, answers in order, and limits on everything a stranger can
// make the broker spend.
//
//	socket -> read loop -> API.Handle -> queue -> flush -> socket
//	           (handles)                (in order; waits for Response.Done)
//
// A connection has one read loop. It calls the handler of each request itself,
// so effects happen in the order of the requests, and it goes on with the next
// request while the answer of the last still waits. Answers leave in the order
// of their requests. Whoever makes the first answer of the queue ready sends it:
// the read loop, when a response is done at once, without a hand-over to
// another goroutine; otherwise the connection's write loop, which sleeps until
// Request.Wake or a deadline. One of them at a time holds the flusher's role
// (flush.go), so a Response is never used by two goroutines at once.
//
// Memory is bounded by two budgets, of requests (block.go) and of answers
// (unsent.go), which addresses share (budget.go). While one is used up, those who
// hold much of it and hardly move are closed (pressure.go).
//
// It may assume a Linux kernel. It knows no message and no handler: the table of
// APIs is given to it. It decodes nothing but request headers. What a handler
// decodes, it decodes inside Decode, the only place where a panic is recovered:
// there, a panic is about a stranger's bytes and costs that connection. A panic
// anywhere else is a broken invariant of ours and ends the process, since going
// on would risk data.
//
// Deliberately absent: authentication and quotas (later), and any timer a
// request: time limits are enforced by one sweeper for all connections, and a
// waiting response arms its connection's only timer at most once per deadline.
package wire
