package relay

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// conn is a connection to a broker. It belongs to one request at a time, but for
// nc, whose deadline others may set.
type conn struct {
	lane      lane
	nc        net.Conn
	in        *bufio.Reader
	out       []byte
	idleSince time.Time
}

// Sizes of a connection's memory.
const (
	inBytes      = 16 << 10
	joinedBytes  = 64 << 10 // Up to here head and body go out as one.
	keptOutBytes = 128 << 10
)

func newConn(in lane, nc net.Conn) *conn {
	return &conn{lane: in, nc: nc, in: bufio.NewReaderSize(nc, inBytes)}
}

// interrupt ends what is under way; the connection is of no use after it.
func (c *conn) interrupt() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// exchange sends a request and reads the head of the answer. sent says that some of
// the request has left.
func (c *conn) exchange(r *http.Request, body []byte, own []string) (resp *http.Response, sent bool, err error) {
	c.out = appendHead(c.out[:0], r, len(body), own)
	rest := body
	if len(body) <= joinedBytes {
		c.out, rest = append(c.out, body...), nil
	}
	n, err := c.nc.Write(c.out)
	if cap(c.out) > keptOutBytes {
		c.out = nil
	}
	if err == nil && len(rest) > 0 {
		_, err = c.nc.Write(rest)
	}
	if err != nil {
		return nil, n > 0, err
	}
	for {
		resp, err = http.ReadResponse(c.in, r)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, true, errors.New("it closed the connection")
		case err != nil:
			return nil, true, err
		case resp.StatusCode >= http.StatusOK:
			return resp, true, nil
		}
	}
}

// appendHead appends the request line and the fields.
func appendHead(dst []byte, r *http.Request, size int, own []string) []byte {
	dst = append(append(append(dst, r.Method...), ' '), r.RequestURI...)
	dst = append(append(append(dst, " HTTP/1.1\r\nHost: "...), r.Host...), "\r\n"...)
	for name, values := range r.Header {
		if ownToConnection(name) || strings.HasPrefix(name, FieldPrefix) || namedIn(r.Header["Connection"], name) {
			continue
		}
		for _, v := range values {
			dst = append(append(append(append(dst, name...), ": "...), v...), "\r\n"...)
		}
	}
	if r.RemoteAddr != "" {
		dst = append(append(append(dst, ClientField+": "...), r.RemoteAddr...), "\r\n"...)
	}
	for i := 0; i+1 < len(own); i += 2 {
		dst = append(append(append(append(dst, own[i]...), ": "...), own[i+1]...), "\r\n"...)
	}
	if size > 0 || r.Method != http.MethodGet {
		dst = strconv.AppendInt(append(dst, "Content-Length: "...), int64(size), 10)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// ownToConnection says whether a field is about the connection that it came on, or
// about the body as it came there.
func ownToConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Expect", "Content-Length", "Host":
		return true
	}
	return false
}

// namedIn says whether the Connection field names another one.
func namedIn(connection []string, name string) bool {
	for _, v := range connection {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), name) {
				return true
			}
		}
	}
	return false
}

// answerBody is the body of an answer; its end gives the connection back.
type answerBody struct {
	io.ReadCloser
	end   func(whole bool)
	ended bool
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.finish(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.finish(false)
	return nil
}

func (b *answerBody) finish(whole bool) {
	if !b.ended {
		b.ended = true
		b.end(whole)
	}
}

// CopyFields copies the fields of an answer, but for those about its connection and
// those that brokers tell one another.
func CopyFields(to, from http.Header) {
	for name, values := range from {
		switch {
		case name == "Date", strings.HasPrefix(name, FieldPrefix):
		case name == "Content-Length" || !ownToConnection(name):
			to[name] = values
		}
	}
}
