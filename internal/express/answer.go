package express

import (
	"net/http"
	"strconv"
	"time"
)

// answer is the http.ResponseWriter of a request here: it keeps all until the
// handler has returned.
type answer struct {
	header http.Header
	status int // 0 before it is given.
	body   []byte
	out    []byte

	// date is the field as of second.
	date   []byte
	second int64
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.body = append(a.body, p...)
	return len(p), nil
}

// SetReadDeadline is for http.ResponseController: the body is there already.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController: the loop has its own.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// maxKeptAnswer bounds the memory that is kept for the next answer.
const maxKeptAnswer = 64 << 10

// begin makes the answer ready for a request.
func (a *answer) begin() {
	clear(a.header)
	a.status, a.body, a.out = 0, a.body[:0], a.out[:0]
	if cap(a.body) > maxKeptAnswer {
		a.body, a.out = nil, nil
	}
}

// encode returns the bytes of the answer. closing says that nothing follows on the
// connection, which the handler may have said as well.
func (a *answer) encode(now time.Time, closing bool) (out []byte, last bool) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	last = closing || a.header.Get("Connection") == "close"
	out = append(a.out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(a.status), 10)
	out = append(append(append(out, ' '), http.StatusText(a.status)...), "\r\n"...)
	for name, values := range a.header {
		if name == "Connection" || name == "Content-Length" || name == "Date" {
			continue
		}
		for _, v := range values {
			out = append(append(append(append(out, name...), ": "...), v...), "\r\n"...)
		}
	}
	if s := now.Unix(); s != a.second {
		a.second, a.date = s, now.UTC().AppendFormat(a.date[:0], http.TimeFormat)
	}
	out = append(append(append(out, "Date: "...), a.date...), "\r\n"...)
	if last {
		out = append(out, "Connection: close\r\n"...)
	}
	if a.status != http.StatusNoContent {
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, int64(len(a.body)), 10), "\r\n"...)
	}
	out = append(append(out, "\r\n"...), a.body...)
	a.out = out
	return out, last
}
