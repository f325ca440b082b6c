package express

import (
	"bytes"
	"net/http"
	"net/textproto"
)

// The bounds of what is read here. What is larger is left to net/http.
const (
	maxHead = 4 << 10
	maxBody = 12 << 10
)

// head is the request line and the header fields of a request.
type head struct {
	size   int // Up to and with the empty line.
	route  *Route
	path   string
	param  string
	host   string
	fields http.Header
	body   int // Bytes of the body.
}

// verdict is what becomes of what was read of a request.
type verdict int8

const (
	needsMore verdict = iota // The head is not there in full.
	takes                    // It is a request of a route.
	leaves                   // It is not, or nobody can know here.
)

// read reads the head of the request at the begin of b. The fields of h are copies.
func (h *head) read(b []byte, routes []Route) verdict {
	size := bytes.Index(b, []byte("\r\n\r\n"))
	if size < 0 {
		if len(b) > maxHead || !mayBegin(b, routes) {
			return leaves
		}
		return needsMore
	}
	h.size = size + 4
	if h.size > maxHead {
		return leaves
	}
	line, rest, _ := bytes.Cut(b[:size+2], []byte("\r\n"))
	if !h.readLine(line, routes) {
		return leaves
	}
	h.fields, h.host, h.body = http.Header{}, "", -1
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if !h.readField(line) {
			return leaves
		}
	}
	if h.host == "" || h.body < 0 {
		return leaves
	}
	return takes
}

// mayBegin reports whether bytes are the begin of a request of a route as far as
// they go, so that what is something else is not kept waiting here.
func mayBegin(b []byte, routes []Route) bool {
	for i := range routes {
		begin := routes[i].begin
		if n := min(len(b), len(begin)); string(b[:n]) == begin[:n] {
			return true
		}
	}
	return false
}

// readLine reads a request line.
func (h *head) readLine(line []byte, routes []Route) bool {
	target, ok := bytes.CutSuffix(line, []byte(" HTTP/1.1"))
	if !ok {
		return false
	}
	for i := range routes {
		r := &routes[i]
		rest, ok := bytes.CutPrefix(target, []byte(r.begin))
		if !ok {
			continue
		}
		param, ok := bytes.CutSuffix(rest, []byte(r.Suffix))
		if !ok || !plainSegment(param) {
			continue
		}
		h.route, h.param = r, string(param)
		h.path = r.Prefix + h.param + r.Suffix
		return true
	}
	return false
}

// plainSegment reports whether a segment of a path means just itself, whoever
// reads it.
func plainSegment(p []byte) bool {
	if len(p) == 0 || string(p) == "." || string(p) == ".." {
		return false
	}
	for _, c := range p {
		if !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// readField reads a header field.
func (h *head) readField(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(name) {
		return false
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	key := textproto.CanonicalMIMEHeaderKey(string(name))
	switch key {
	case "Host":
		if h.host != "" || !plainHost(value) {
			return false
		}
		h.host = string(value)
		return true // Like net/http, which takes it out of the fields.
	case "Content-Length":
		if h.body >= 0 || !h.readLength(value) {
			return false
		}
	case "Connection":
		if !bytes.EqualFold(value, []byte("keep-alive")) {
			return false
		}
	case "Transfer-Encoding", "Content-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Proxy-Connection",
		"Pragma", "Cache-Control", "Origin", "Sec-Fetch-Site":
		// Something about the connection or the body, or from a browser.
		return false
	}
	h.fields[key] = append(h.fields[key], string(value))
	return true
}

// plainHost reports whether a Host is a name or an address with or without a port.
func plainHost(p []byte) bool {
	for _, c := range p {
		if !isAlphanumeric(c) && c != '.' && c != '-' && c != ':' && c != '[' && c != ']' {
			return false
		}
	}
	return len(p) > 0
}

// readLength reads a Content-Length, which must be of a body that is short.
func (h *head) readLength(digits []byte) bool {
	const longest = 9
	if len(digits) == 0 || len(digits) > longest {
		return false
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + int(c-'0')
	}
	h.body = n
	return n <= maxBody
}

// isToken reports whether a field's name is one by RFC 9110.
func isToken(p []byte) bool {
	for _, c := range p {
		if !isAlphanumeric(c) && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) < 0 {
			return false
		}
	}
	return len(p) > 0
}
