package strictjson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/strandline/strandline/internal/nearest"
)

// maxDepth is how deep objects and arrays may nest.
const maxDepth = 8

// Error says what is wrong with a document and where.
type Error struct {
	Path    string // Such as records[3].value; "" for the document itself.
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// step is a part of the path: a field's name, or an index where the name is "", or
// nothing yet.
type step struct {
	name  string
	index int
}

// Reader reads one document. After the first failure everything it returns is
// zero, and Err says what it was.
type Reader struct {
	src     []byte
	at      int
	path    [maxDepth]step
	depth   int
	scratch []byte // Of keys and of base64 with escapes.
	err     error
}

// Reset makes r read a document from its start. The source must not change while
// it is read, nor while what was read in place is in use.
func (r *Reader) Reset(src []byte) {
	r.src, r.at, r.depth, r.err = src, 0, 0, nil
}

// Err returns the first failure, as an *Error.
func (r *Reader) Err() error { return r.err }

// Fail makes the value at hand the failure, unless there is one.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = &Error{r.where(), fmt.Sprintf(format, args...)}
	}
}

// where returns the path to the value at hand.
func (r *Reader) where() string {
	var b strings.Builder
	for _, s := range r.path[:r.depth] {
		switch {
		case s.name == "" && s.index < 0:
		case s.name == "":
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// malformed makes a byte that cannot stand where it stands the failure.
func (r *Reader) malformed(wanted string) {
	if r.at >= len(r.src) {
		r.Fail("the JSON ends after %d bytes, where %s should be", len(r.src), wanted)
		return
	}
	r.Fail("the JSON is malformed at byte %d: there is %q where %s should be", r.at, r.src[r.at], wanted)
}

// peek returns the next byte that is no space, 0 at the end.
func (r *Reader) peek() byte {
	for ; r.at < len(r.src); r.at++ {
		switch c := r.src[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// kind names the value that begins with a byte.
func kind(c byte) string {
	switch {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	}
	return ""
}

// open consumes the first byte of a value that must be of a kind.
func (r *Reader) open(c byte) bool {
	if r.err != nil {
		return false
	}
	got := r.peek()
	if got == c {
		r.at++
		return true
	}
	r.other(kind(c))
	return false
}

// other makes a value of another kind than the wanted one the failure.
func (r *Reader) other(wanted string) {
	if is := kind(r.peek()); is != "" {
		r.Fail("want %s, not %s", wanted, is)
		return
	}
	r.malformed(wanted)
}

func (r *Reader) push() bool {
	if r.depth == maxDepth {
		r.Fail("it nests deeper than %d levels", maxDepth)
		return false
	}
	r.path[r.depth] = step{index: -1}
	r.depth++
	return true
}

// separated consumes what stands before the next element, or the end of the
// object or array. It reports whether there is one.
func (r *Reader) separated(first bool, end byte) bool {
	if r.err != nil {
		return false
	}
	switch c := r.peek(); {
	case c == end:
		r.at++
		r.depth--
		return false
	case first:
		return true
	case c == ',':
		r.at++
		if r.peek() == end {
			r.malformed("another element, after the comma,")
			return false
		}
		return true
	}
	r.malformed("',' or '" + string(rune(end)) + "'")
	return false
}

// Object is an object that is being read.
type Object struct {
	names []string
	seen  uint64
	begun bool
}

// Object begins an object that has fields of the given names, at most 64, and no
// others.
func (r *Reader) Object(names []string) Object {
	if r.open('{') {
		r.push()
	}
	return Object{names: names}
}

// Next returns the index of the next field's name, whose value is to be read
// next, and false at the end.
func (r *Reader) Next(o *Object) (int, bool) {
	if !r.separated(!o.begun, '}') {
		return 0, false
	}
	o.begun = true
	key := r.key()
	if r.err != nil {
		return 0, false
	}
	for i, name := range o.names {
		if string(key) != name {
			continue
		}
		if o.seen&(1<<i) != 0 {
			r.depth--
			r.Fail("field %q is given twice", name)
			return 0, false
		}
		o.seen |= 1 << i
		r.path[r.depth-1] = step{name: name}
		return i, true
	}
	r.depth--
	r.unknown(string(key), o.names)
	return 0, false
}

// Has says whether a field of the object was given.
func (o *Object) Has(i int) bool { return o.seen&(1<<i) != 0 }

// maxShown bounds what a message repeats of a stranger's text.
const maxShown = 60

func (r *Reader) unknown(name string, names []string) {
	if len(name) > maxShown {
		r.Fail("unknown field %q...", strings.ToValidUTF8(name[:maxShown], ""))
		return
	}
	if near := nearest.To(name, slices.Values(names)); near != "" {
		r.Fail("unknown field %q: did you mean %q?", name, near)
		return
	}
	r.Fail("unknown field %q: the fields are %s", name, strings.Join(names, ", "))
}

// Map is an object whose keys the sender chooses.
type Map struct {
	seen  map[string]bool
	begun bool
}

// Map begins an object of any keys.
func (r *Reader) Map() Map {
	if r.open('{') {
		r.push()
	}
	return Map{seen: map[string]bool{}}
}

// NextKey returns the next key, whose value is to be read next, and false at the
// end.
func (r *Reader) NextKey(m *Map) (string, bool) {
	if !r.separated(!m.begun, '}') {
		return "", false
	}
	m.begun = true
	key := string(r.key())
	if r.err != nil {
		return "", false
	}
	if m.seen[key] {
		r.depth--
		r.Fail("key %q is given twice", clip(key))
		return "", false
	}
	m.seen[key] = true
	r.path[r.depth-1] = step{name: clip(key)}
	if key == "" {
		r.path[r.depth-1].name = `""`
	}
	return key, true
}

func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}

// key reads a key and the colon. It is good until the next one.
func (r *Reader) key() []byte {
	if r.peek() != '"' {
		r.malformed("a key in quotes")
		return nil
	}
	r.at++
	r.scratch = r.text(r.scratch[:0])
	if r.err == nil && r.peek() != ':' {
		r.malformed("':'")
	}
	r.at++
	return r.scratch
}

// Array is an array that is being read.
type Array struct{ n int }

// Array begins an array.
func (r *Reader) Array() Array {
	if r.open('[') {
		r.push()
	}
	return Array{}
}

// More reports whether there is another element, which is to be read next.
func (r *Reader) More(a *Array) bool {
	if !r.separated(a.n == 0, ']') {
		return false
	}
	r.path[r.depth-1] = step{index: a.n}
	a.n++
	return true
}

// Null consumes a null and reports whether there was one.
func (r *Reader) Null() bool {
	if r.err != nil || r.peek() != 'n' {
		return false
	}
	return r.word("null")
}

func (r *Reader) word(w string) bool {
	if !bytes.HasPrefix(r.src[r.at:], []byte(w)) {
		r.malformed(w)
		return false
	}
	r.at += len(w)
	return true
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	if r.err != nil {
		return false
	}
	switch r.peek() {
	case 't':
		return r.word("true")
	case 'f':
		r.word("false")
	default:
		r.other("a boolean")
	}
	return false
}

// Int reads a whole number between low and high.
func (r *Reader) Int(low, high int64) int64 {
	if r.err != nil {
		return 0
	}
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		r.other("a whole number")
		return 0
	}
	start := r.at
	for r.at < len(r.src) && strings.IndexByte("+-.0123456789eE", r.src[r.at]) >= 0 {
		r.at++
	}
	text := string(r.src[start:r.at])
	n, err := strconv.ParseInt(text, 10, 64)
	digits := strings.TrimPrefix(text, "-")
	switch {
	case len(digits) > 1 && digits[0] == '0' || text == "-0":
		r.Fail("want a whole number, not %s", clip(text))
	case err == nil && n >= low && n <= high:
		return n
	case err == nil || errors.Is(err, strconv.ErrRange):
		r.Fail("%s is out of range: want %s", clip(text), interval(low, high))
	default:
		r.Fail("want a whole number, not %s", clip(text))
	}
	return 0
}

func interval(low, high int64) string {
	switch {
	case high == math.MaxInt64 && low == math.MinInt64:
		return "64 bits"
	case high == math.MaxInt64:
		return fmt.Sprintf("at least %d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// Text appends a string to dst. It is valid UTF-8.
func (r *Reader) Text(dst []byte) []byte {
	if !r.open('"') {
		return dst
	}
	return r.text(dst)
}

// String reads a string.
func (r *Reader) String() string {
	r.scratch = r.Text(r.scratch[:0])
	return string(r.scratch)
}

// Base64 appends what a string holds in base64 (RFC 4648, with padding) to dst.
func (r *Reader) Base64(dst []byte) []byte {
	if r.err == nil && r.peek() != '"' {
		r.other("a string in base64")
	}
	if !r.open('"') {
		return dst
	}
	src := r.src[r.at:]
	end := bytes.IndexByte(src, '"')
	if end < 0 {
		r.at = len(r.src)
		r.malformed("the end of a string")
		return dst
	}
	src = src[:end]
	if bytes.IndexByte(src, '\\') >= 0 {
		r.scratch = r.text(r.scratch[:0])
		src = r.scratch
	} else {
		if i := max(bytes.IndexByte(src, '\n'), bytes.IndexByte(src, '\r')); i >= 0 {
			r.at += i
			r.malformed("no line break")
		}
		r.at += end + 1
	}
	if r.err != nil {
		return dst
	}
	out, err := base64.StdEncoding.AppendDecode(dst, src)
	if err != nil {
		r.Fail("%s", base64Trouble(src, err))
		return dst
	}
	return out
}

// base64Trouble says what is wrong with text that is no base64.
func base64Trouble(src []byte, err error) string {
	const hint = ": encode the bytes with the standard alphabet and padding, as base64(1) does"
	var at base64.CorruptInputError
	if !errors.As(err, &at) {
		return err.Error()
	}
	switch i := int(at); {
	case i >= len(src) || bytes.IndexByte(src, '=') < 0 && len(bytes.Trim(src, "\r\n"))%4 != 0 && alphabet(src):
		return "not valid base64: it ends early, or its padding (=) is missing" + hint
	case src[i] == '-' || src[i] == '_':
		return fmt.Sprintf("not valid base64: %q at position %d is of the URL-safe alphabet%s", src[i], i, hint)
	default:
		r, _ := utf8.DecodeRune(src[i:])
		return fmt.Sprintf("not valid base64: %q at position %d%s", r, i, hint)
	}
}

// alphabet says whether all bytes are of base64's alphabet.
func alphabet(src []byte) bool {
	for _, c := range src {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' ||
			c == '\r' || c == '\n' {
			continue
		}
		return false
	}
	return true
}

// End makes sure that nothing follows, and returns the first failure.
func (r *Reader) End() error {
	if r.peek(); r.err == nil && r.at < len(r.src) {
		r.Fail("there is more after the end of the JSON value, at byte %d: send one value", r.at)
	}
	return r.err
}
