package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/strandline/strandline/internal/kafka"
)

// server answers the requests of the table.
type server struct {
	Services
	broker Broker
	log    requestLog
	// origins keeps pages of other origins out: a browser would carry out what
	// they say with all the rights of the machine that it runs on.
	origins *http.CrossOriginProtection
	// running are the requests that are being answered, those that wait for
	// records included.
	running atomic.Int64
	// bodies is what the bodies of all requests may take together, and what answers wait
	// with for clients to take them. Those have half of it at most: whoever reads slowly
	// must not keep others from writing.
	bodies  *semaphore.Weighted
	answers *semaphore.Weighted
	buffers sync.Pool // Of *body.
	pages   sync.Pool // Of *page.
	calls   sync.Pool // Of *produceCall.
}

func newServer(b Broker, services Services) *server {
	return &server{
		Services: services, broker: b, origins: http.NewCrossOriginProtection(),
		log:     requestLog{logger: services.Logger, lines: map[string]*loggedLine{}},
		bodies:  semaphore.NewWeighted(services.Broker().QueuedMaxRequestBytes),
		answers: semaphore.NewWeighted(services.Broker().QueuedMaxRequestBytes / 2),
	}
}

// takeForAnswer takes a share of the budget for an answer; false if there is none.
func (s *server) takeForAnswer(n int64) bool {
	if !s.answers.TryAcquire(n) {
		return false
	}
	if !s.bodies.TryAcquire(n) {
		s.answers.Release(n)
		return false
	}
	return true
}

func (s *server) releaseOfAnswer(n int64) {
	s.answers.Release(n)
	s.bodies.Release(n)
}

// serve makes a handler of a row: it bounds how many requests are answered at a
// time, and turns errors into answers.
func (s *server) serve(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer s.running.Add(-1)
		if limit := int64(s.Broker().HTTPMaxRequests); s.running.Add(1) > limit {
			s.fail(w, r, refuse(http.StatusTooManyRequests, kafka.ErrThrottlingQuotaExceeded,
				"%d requests are being answered, which is the most at a time (http.max.requests): try again", limit))
			return
		}
		if err := s.sameOrigin(r); err != nil && !inside(r) { // Another broker has looked already.
			s.fail(w, r, err)
			return
		}
		if r.ContentLength == 0 {
			// There is no body to wait for: the time for it must not end a request
			// that waits for records.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		if err := h(s, w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}

// sameOrigin refuses a request that changes something and comes from a web page of
// another origin.
func (s *server) sameOrigin(r *http.Request) error {
	if err := s.origins.Check(r); err != nil {
		return refuse(http.StatusForbidden, kafka.ErrClusterAuthorizationFailed,
			"the request comes from a web page of another origin: %v", err)
	}
	return nil
}

// nothingHere answers what no row is for: the path is unknown, or the method is
// not one of the path's.
func (s *server) nothingHere(mux *http.ServeMux) handler {
	return func(_ *server, _ http.ResponseWriter, r *http.Request) error {
		var allowed []string
		for _, method := range []string{"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "" && pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			return refuse(http.StatusNotFound, kafka.ErrResourceNotFound,
				"there is nothing at %s: the API is described at /v1/openapi.json", clip(r.URL.Path))
		}
		allow := strings.Join(allowed, ", ")
		return &httpError{
			status: http.StatusMethodNotAllowed, code: kafka.ErrInvalidRequest, allow: allow,
			message: fmt.Sprintf("%s is not a method of %s: use %s", clip(r.Method), clip(r.URL.Path), allow),
		}
	}
}

// clip bounds what a message repeats of a stranger's text.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
