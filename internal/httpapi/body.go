package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/nearest"
	"github.com/strandline/strandline/internal/strictjson"
)

// The types of bodies.
const (
	typeJSON = "application/json"
	typeRaw  = "application/octet-stream"
)

// firstBody is the first size of a body's buffer; it grows as bytes arrive, so
// that a stranger who announces many and sends few takes few.
const firstBody = 16 << 10

// maxKeptBody bounds the buffers that are kept for the next request.
const maxKeptBody = 1 << 20

// slowest is the rate below which a body is too slow, once its first time-out is
// over.
const slowestBytesPerSecond = 64 << 10

// body is a request's body in memory. It belongs to one request until release.
type body struct {
	bytes  []byte
	server *server
	taken  int64 // Of the server's budget; bytes may grow to it.
}

// maxCommandBytes bounds a body that is decoded into values: a few bytes of it
// can become many in memory, and no budget counts those.
const maxCommandBytes = 1 << 20

// passedOnMore is how much longer a request may become that one broker makes of a part of
// another, beside that values which came as they are go in base64: the fields of as many records
// as a request may have.
const passedOnMore = 4 << 20

// readBody reads the request's body, of at most so many bytes. The caller releases
// it, after which nothing of it may be used.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, most int64) (*body, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, refuse(http.StatusUnsupportedMediaType, kafka.ErrInvalidRequest,
			"bodies in Content-Encoding %s are not read: send it as it is", clip(e))
	}
	b, _ := s.buffers.Get().(*body)
	if b == nil {
		b = &body{server: s}
	}
	if err := b.read(w, r, most); err != nil {
		w.Header().Set("Connection", "close") // Nobody knows where the next request begins.
		b.release()
		return nil, err
	}
	return b, nil
}

// release gives the body back.
func (b *body) release() {
	b.server.bodies.Release(b.taken)
	b.taken = 0
	if cap(b.bytes) <= maxKeptBody {
		b.server.buffers.Put(b)
	}
}

func (b *body) read(w http.ResponseWriter, r *http.Request, most int64) error {
	limit, setting := int64(b.server.Broker().SocketRequestMaxBytes), " (socket.request.max.bytes)"
	if inside(r) { // It was let in as it came, and may have grown by being passed on.
		limit += limit/3 + passedOnMore
	}
	if most < limit {
		limit, setting = most, ""
	}
	tooLarge := func() error {
		return refuse(http.StatusRequestEntityTooLarge, kafka.ErrMessageTooLarge,
			"the body is larger than %d bytes%s: send less at a time", limit, setting)
	}
	if r.ContentLength > limit {
		return tooLarge()
	}
	first := int64(firstBody)
	if r.ContentLength >= 0 {
		first = min(first, r.ContentLength+1) // One more, to see the end.
	}
	b.bytes = b.bytes[:0]
	if err := b.grow(first); err != nil {
		return err
	}
	// The listener's read time-out is the first deadline. It is lifted when all is
	// there: whatever the request waits for then is not the client's doing.
	rc := http.NewResponseController(w)
	timeout := b.server.Broker().HTTPBodyTimeout
	start, allowed := b.server.Now(), int64(0)
	for {
		n, err := r.Body.Read(b.bytes[len(b.bytes):b.taken])
		b.bytes = b.bytes[:len(b.bytes)+n]
		got := int64(len(b.bytes))
		switch {
		case got > limit:
			return tooLarge()
		case errors.Is(err, io.EOF):
			_ = rc.SetReadDeadline(time.Time{})
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return refuse(http.StatusRequestTimeout, kafka.ErrRequestTimedOut,
				"the body took longer than %v (http.body.timeout.ms), and %d bytes of it have arrived: "+
					"send it in one go", timeout+time.Duration(allowed)*time.Second, got)
		case err != nil:
			return badRequest("the body broke off after %d bytes: %v", got, err)
		}
		if more := got / slowestBytesPerSecond; more > allowed {
			allowed = more
			_ = rc.SetReadDeadline(start.Add(timeout + time.Duration(more)*time.Second))
		}
		if got == b.taken {
			if err := b.grow(min(2*got, limit+1)); err != nil {
				return err
			}
		}
	}
}

// noMemory refuses a request for which the budget has no room.
func noMemory() error {
	return refuse(http.StatusTooManyRequests, kafka.ErrThrottlingQuotaExceeded,
		"the requests that are being read take all the memory they may (queued.max.request.bytes): try again")
}

// grow makes room for size bytes in all, within the budget.
func (b *body) grow(size int64) error {
	if !b.server.bodies.TryAcquire(size - b.taken) {
		return noMemory()
	}
	b.taken = size
	b.bytes = slices.Grow(b.bytes, int(size)-len(b.bytes))
	return nil
}

// contentType returns the type of the request's body without its parameters,
// JSON where none is given.
func contentType(r *http.Request) string {
	t := r.Header.Get("Content-Type")
	if t == typeJSON || t == typeRaw {
		return t
	}
	if t == "" {
		return typeJSON
	}
	if bare, _, err := mime.ParseMediaType(t); err == nil {
		return bare
	}
	return t
}

// wrongType refuses a body of another type than those.
func wrongType(got, wanted string) error {
	hint := ""
	if got == "application/x-www-form-urlencoded" {
		hint = " (curl sends that type unless told otherwise)"
	}
	return refuse(http.StatusUnsupportedMediaType, kafka.ErrInvalidRequest,
		"the body is %s%s: send it with Content-Type: %s", clip(got), hint, wanted)
}

// decode reads the request's JSON body into the struct that v points to: all that it has to
// say, so that there are no query parameters. It returns the body as well, for whom the
// request may be passed on to.
func (s *server) decode(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	if _, err := query(r); err != nil {
		return nil, err
	}
	if got := contentType(r); got != typeJSON {
		return nil, wrongType(got, typeJSON)
	}
	b, err := s.readBody(w, r, maxCommandBytes)
	if err != nil {
		return nil, err
	}
	defer b.release()
	return slices.Clone(b.bytes), decodeJSON(b.bytes, v)
}

// decodeJSON reads JSON into the struct that v points to. Nothing of v aliases it.
func decodeJSON(src []byte, v any) error {
	if len(src) == 0 {
		return badRequest("the request has no body: send a JSON object")
	}
	return guarded(func() error {
		if err := strictjson.Decode(src, v); err != nil {
			return badRequest("%v", err)
		}
		return nil
	})
}

// query returns the request's query parameters, of which there may be those of
// the names, each once.
func query(r *http.Request, names ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is malformed: %v", err)
	}
	for name, all := range values {
		if !slices.Contains(names, name) {
			return nil, unknownParameter(name, names)
		}
		if len(all) > 1 {
			return nil, badRequest("query parameter %s is given %d times: give it once", name, len(all))
		}
	}
	return values, nil
}

func unknownParameter(name string, names []string) error {
	name = clip(name)
	if len(names) == 0 {
		return badRequest("unknown query parameter %q: there are none here", name)
	}
	if near := nearest.To(name, slices.Values(names)); near != "" {
		return badRequest("unknown query parameter %q: did you mean %s?", name, near)
	}
	return badRequest("unknown query parameter %q: see /v1/openapi.json for those there are", name)
}
