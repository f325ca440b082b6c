// Package express answers short requests of HTTP/1.1 on a loop of its own, and
// leaves all others to net/http.
//
//	listener -> Lane -> a connection's goroutine
//	                      | a whole request of a Route, in plain form: answer it, go on
//	                      | anything else: the connection, with what was read of it,
//	                      v goes to Rest, for good
//	                    http.Server
//
// Why: of a request that appends one record net/http takes more than all else
// together, most of it for what such a request never needs: a goroutine that looks
// out for the client's end while the handler runs, a context, a map of headers and
// several timers for each request. docs/decisions says what was measured.
//
// What it takes is deliberately narrow: no chunked bodies, no escapes, queries or
// dots in paths, no Expect, no Upgrade, nothing that two readers could read
// differently. What it does not take in full it does not judge: it never refuses a
// request, net/http does. A test holds its reading against net/http's, and a fuzz
// target looks for bytes that they read differently.
//
// Handlers are called as net/http calls them, with these differences: the context
// ends when the Lane stops, not when the client is gone; the body is in memory;
// an answer is sent when the handler returns, cannot be flushed before, and its
// Content-Type is not guessed; the Request is used again for the next one, with
// the same Header if the client sends the same, so a handler must not change it.
//
// Run owns all goroutines here and returns when they have ended. Deliberately
// absent: TLS, limits on connections (netx.Limited), recovery from panics.
package express
