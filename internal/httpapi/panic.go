package httpapi

import (
	"fmt"
	"net/http"
	"runtime/debug"
)

// EndOnPanic makes a handler whose panics end the process, as those of every other
// goroutine of a broker do: net/http would end the connection and go on, and a
// broker that goes on after a broken invariant is how data is lost. What reads a
// stranger's bytes and changes nothing is guarded by itself (guarded).
func EndOnPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler: // Not a failure: how a handler ends a connection.
				panic(v)
			default:
				end(fmt.Sprintf("%s %s: %v\n\n%s", r.Method, clip(r.URL.Path), v, debug.Stack()))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// end ends the process, with what happened as its last words. It never returns.
func end(what string) {
	go panic("httpapi: a request's handler panicked: " + what) // Ends with the process; nobody recovers it.
	select {}
}

// panicError says that reading a stranger's bytes panicked.
type panicError struct{ value any }

// Error implements error.
func (e *panicError) Error() string { return fmt.Sprintf("reading the body panicked: %v", e.value) }

// guarded reads a stranger's bytes, and turns a panic into an error: no bytes may
// end the process. It is for functions that read input and change nothing else.
func guarded(read func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return read()
}
