package httpapi

import (
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/session"
)

// form is how records are written to a caller.
type form int8

const (
	inArray  form = iota // Elements of a JSON array.
	inLines              // A line each.
	inEvents             // A server-sent event each.
)

// page takes records as JSON. It implements session.Sink.
type page struct {
	form   form
	text   bool // Values that are text are given as text.
	stale  bool // Each record of a stream says so.
	out    []byte
	server *server
	taken  int64 // Of the server's budget.
	more   bool  // There is a record before the next one.
}

// pageStep is by how much a page's share of the budget grows.
const pageStep = 256 << 10

// maxKeptPage bounds the pages that are kept for the next request: one of the
// default max_bytes in base64 is kept.
const maxKeptPage = 4 << 20

// Add implements session.Sink. It reports false when the budget for all requests
// leaves no room for more.
func (p *page) Add(partition int32, r *record.Record) bool {
	switch p.form {
	case inArray:
		if p.more {
			p.out = append(p.out, ',')
		}
		p.out = p.appendRecord(p.out, partition, r)
	case inLines:
		p.out = append(p.appendRecord(p.out, partition, r), '\n')
	case inEvents:
		p.out = append(p.out, "id: "...)
		p.out = strconv.AppendInt(p.out, int64(partition), 10)
		p.out = append(p.out, ':')
		p.out = strconv.AppendInt(p.out, int64(r.Offset), 10)
		p.out = append(p.out, "\ndata: "...)
		p.out = append(p.appendRecord(p.out, partition, r), "\n\n"...)
	}
	p.more = true
	for p.taken < int64(len(p.out)) {
		if !p.server.takeForAnswer(pageStep) {
			return false
		}
		p.taken += pageStep
	}
	return true
}

// Mark implements session.Sink.
func (p *page) Mark() int {
	if p.more {
		return len(p.out)
	}
	return -len(p.out) - 1
}

// Rewind implements session.Sink.
func (p *page) Rewind(mark int) {
	if p.more = mark >= 0; !p.more {
		mark = -mark - 1
	}
	p.out = p.out[:mark]
}

// unpaid reports whether less than half of what the page holds was to be had of
// the budget, which the first record of a page does not wait for. Such a page is
// not kept: a client may take its time to read it.
func (p *page) unpaid() bool { return p.more && 2*p.taken < int64(len(p.out)) }

// empty makes the page ready for the next records of a stream.
func (p *page) empty() {
	p.server.releaseOfAnswer(p.taken)
	p.taken, p.more, p.out = 0, false, p.out[:0]
}

// takePage returns an empty page; release gives it back.
func (s *server) takePage(f form, text bool) *page {
	p, _ := s.pages.Get().(*page)
	if p == nil {
		p = &page{server: s}
	}
	p.form, p.text, p.stale = f, text, false
	return p
}

func (p *page) release() {
	p.empty()
	if cap(p.out) <= maxKeptPage {
		p.server.pages.Put(p)
	}
}

// appendRecord appends a record as a JSON object: the fields are those of a
// record to produce, and where it is.
func (p *page) appendRecord(dst []byte, partition int32, r *record.Record) []byte {
	dst = append(dst, `{"partition":`...)
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(r.Offset), 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, floorSeconds(r.Timestamp), 10)
	dst = append(dst, `,"timestamp_ms":`...)
	dst = strconv.AppendInt(dst, r.Timestamp, 10)
	switch {
	case r.Key == nil:
	case utf8.Valid(r.Key):
		dst = append(dst, `,"key":`...)
		dst = appendText(dst, r.Key)
	default:
		dst = append(dst, `,"key_base64":`...)
		dst = appendBase64(dst, r.Key)
	}
	dst = append(dst, ',')
	dst = p.appendValue(dst, r.Value)
	first := true
	for i := range r.Headers {
		h := &r.Headers[i]
		if idempotency.Reserved(h.Key) {
			continue // The broker's own note, which no caller could send back.
		}
		if first {
			dst = append(dst, `,"headers":[`...)
		} else {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, `{"key":`...)
		dst = appendText(dst, []byte(h.Key))
		dst = append(dst, ',')
		dst = append(p.appendValue(dst, h.Value), '}')
	}
	if !first {
		dst = append(dst, ']')
	}
	if p.stale {
		dst = append(dst, `,"stale":true`...)
	}
	return append(dst, '}')
}

// appendValue appends the field that has a value.
func (p *page) appendValue(dst, value []byte) []byte {
	switch {
	case value == nil:
		return append(dst, `"value":null`...)
	case p.text && utf8.Valid(value):
		return appendText(append(dst, `"value_text":`...), value)
	}
	return appendBase64(append(dst, `"value":`...), value)
}

func floorSeconds(ms int64) int64 {
	if ms < 0 {
		return (ms - 999) / 1000
	}
	return ms / 1000
}

func appendBase64(dst, src []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, src)
	return append(dst, '"')
}

// appendText appends a JSON string. What is not UTF-8 in it, which only the name
// of a header can have, becomes U+FFFD.
func appendText(dst, src []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(slices.Grow(dst, len(src)+2), '"')
	start := 0
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c >= utf8.RuneSelf:
			if _, size := utf8.DecodeRune(src[i:]); size > 1 {
				i += size
				continue
			}
			dst = append(append(dst, src[start:i]...), "\ufffd"...)
		case c >= ' ' && c != '"' && c != '\\' && c != 0x7f:
			i++
			continue
		case c == '"' || c == '\\':
			dst = append(append(dst, src[start:i]...), '\\', c)
		case c == '\n':
			dst = append(append(dst, src[start:i]...), `\n`...)
		default:
			dst = append(append(dst, src[start:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, src[start:]...), '"')
}

// appendOffsets appends offsets by partition as a JSON object.
func appendOffsets(dst []byte, all []session.Next) []byte {
	dst = append(dst, '{')
	for i, n := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = strconv.AppendInt(dst, int64(n.Partition), 10)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, int64(n.Offset), 10)
	}
	return append(dst, '}')
}
