package httpapi

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/relay"
)

// answer writes a value as the JSON answer.
func answer(w http.ResponseWriter, status int, v any) {
	answerJSON(w, status, append(appendJSON(nil, v), '\n'))
}

// appendJSON appends a value as JSON.
func appendJSON(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("httpapi: an answer that is no JSON: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// shortAnswer is up to where servers tell the length of an answer by themselves.
const shortAnswer = 1 << 10

// answerJSON writes JSON that is there already.
func answerJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	if len(body) > shortAnswer {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // A client that went away needs no answer.
}

// jsonType is the content type of answers. It is constant.
var jsonType = []string{"application/json"}

// clientOf returns the client's address: of a request that another broker has passed
// on, the one that it came from first.
func clientOf(r *http.Request) string {
	if client := r.Header.Get(relay.ClientField); client != "" && inside(r) {
		return clip(client) + " by broker " + r.RemoteAddr
	}
	return r.RemoteAddr
}

// logInterval is the least time between two lines about the same thing.
const logInterval = 5 * time.Second

// requestLog writes few lines about many requests: strangers must not fill the
// log.
type requestLog struct {
	logger *slog.Logger

	mu    sync.Mutex
	lines map[string]*loggedLine // By message, of which there are few.
}

// loggedLine is what is known of a line that may be suppressed.
type loggedLine struct {
	last       time.Time
	suppressed int
}

func (l *requestLog) write(now time.Time, message string, r *http.Request, err error, args ...any) {
	l.mu.Lock()
	line := l.lines[message]
	if line == nil {
		line = &loggedLine{}
		l.lines[message] = line
	}
	if !line.last.IsZero() && now.Sub(line.last) < logInterval {
		line.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := line.suppressed
	line.last, line.suppressed = now, 0
	l.mu.Unlock()
	args = append(args, "method", r.Method, "path", r.URL.Path, "remote", clientOf(r), "error", err)
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.logger.Warn(message, args...)
}
