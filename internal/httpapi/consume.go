package httpapi

// GET /v1/topics/{topic}/consume.
//
//	with group: as a member of it (package session), which may be named in member
//	without:    partition and where to begin: offset, timestamp or timestamp_ms
//
// The answer is a JSON object with the records and where to read on; with Accept:
// application/x-ndjson or text/event-stream it is a stream of records that ends
// after wait_ms.

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/session"
)

// Bounds of a consume request.
const (
	defaultMaxBytes   = 1 << 20
	maxMaxBytes       = 16 << 20
	maxWait           = 5 * time.Minute
	maxSessionTimeout = 30 * time.Minute
)

// consumeParameters are what a consume request may have in its query. It is
// constant.
var consumeParameters = []string{
	"group", "member", "max_bytes", "wait_ms", "auto_commit", "rewind", "auto_offset_reset", "session_timeout_ms",
	"partition", "offset", "timestamp", "timestamp_ms", "text", "isolation",
}

// ConsumedHeader is a header of a record: its value is in base64, or as text if
// that was asked for and it is text.
type ConsumedHeader struct {
	Key       string  `json:"key"`
	Value     []byte  `json:"value,omitzero"`
	ValueText *string `json:"value_text,omitempty"`
}

// ConsumedRecord is a record that was read. Its key is text in key or else base64
// in key_base64, and absent if it is null; its value is base64 in value, or text
// in value_text if that was asked for and it is text; null is a tombstone. It is
// what page.appendRecord writes, which does so in place.
type ConsumedRecord struct {
	Partition   int32            `json:"partition"`
	Offset      int64            `json:"offset"`
	Timestamp   int64            `json:"timestamp"`    // In seconds.
	TimestampMs int64            `json:"timestamp_ms"` // In milliseconds.
	Key         *string          `json:"key,omitempty"`
	KeyBase64   []byte           `json:"key_base64,omitempty"`
	Value       []byte           `json:"value,omitzero"`
	ValueText   *string          `json:"value_text,omitempty"`
	Headers     []ConsumedHeader `json:"headers,omitempty"`
	// Stale is there in streams, where Consumed has it otherwise.
	Stale bool `json:"stale,omitempty"`
}

// Consumed is the answer to a consume request. Without a group it has neither
// member nor generation.
type Consumed struct {
	Records     []ConsumedRecord `json:"records"`
	NextOffsets map[string]int64 `json:"next_offsets"`
	Member      string           `json:"member,omitempty"`
	Generation  int32            `json:"generation,omitempty"`
	// Stale says that the partition has no leader that can be asked, and that these
	// are the records that a replica knew to be acknowledged: there may be later ones.
	Stale bool `json:"stale,omitempty"`
}

// Offsets are the offsets of the next records to read, by partition: the answer
// to a commit or a seek.
type Offsets struct {
	Offsets map[string]int64 `json:"offsets"`
}

// reading is a consume request on its way.
type reading struct {
	server *server
	params url.Values
	member session.Consume
	single session.Read
	group  bool // By member, else by single.
	text   bool
	stale  bool // What a replica has is read, because there is no leader to ask.
	wait   time.Duration

	generation int32
	next       []session.Next
}

func (s *server) consume(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet { // HEAD would take records and give none.
		return &httpError{
			status: http.StatusMethodNotAllowed, code: kafka.ErrInvalidRequest, allow: http.MethodGet,
			message: "records are read with GET",
		}
	}
	c, err := s.readConsume(r)
	if err != nil {
		return err
	}
	f := acceptedForm(r)
	if !c.group {
		return c.readSomewhere(w, r, f)
	}
	return s.travel(w, r, journey{
		find: c.coordinator, here: func() error { return c.answer(w, r, f) }, form: f,
		patience: max(c.wait, failoverPatience), fickle: true,
	})
}

// coordinator finds the broker that coordinates the group.
func (c *reading) coordinator(ctx context.Context) (leadership, error) {
	return c.server.coordinatorOf(ctx, c.member.Group)
}

// answer answers on this broker.
func (c *reading) answer(w http.ResponseWriter, r *http.Request, f form) error {
	if f != inArray {
		return c.stream(w, r, f)
	}
	p := c.server.takePage(inArray, c.text)
	defer p.release()
	p.out = append(p.out, `{"records":[`...)
	b, err := c.read(r.Context(), c.wait, p)
	if err != nil {
		return err
	}
	p.out = append(p.out, ']', ',')
	p.out = append(c.appendEnd(p.out), "}\n"...)
	extendWrite(w)
	h := w.Header()
	h["Content-Type"] = jsonType
	h.Set("Cache-Control", "no-store")
	c.markStale(h)
	h.Set("Content-Length", strconv.Itoa(len(p.out)))
	if _, err := w.Write(p.out); err != nil {
		b.Return()
	}
	return nil
}

// acceptedForm returns the form that the client asks for: the first of those that
// there are.
func acceptedForm(r *http.Request) form {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			switch t, _, _ := strings.Cut(part, ";"); strings.TrimSpace(t) {
			case "application/x-ndjson", "application/jsonl":
				return inLines
			case "text/event-stream":
				return inEvents
			case typeJSON:
				return inArray
			}
		}
	}
	return inArray
}

// writeTimeout is how long a client may take to take what is sent at a time.
const writeTimeout = 30 * time.Second

// extendWrite gives the client time from now on, however long it has waited.
func extendWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// readConsume reads the request.
func (s *server) readConsume(r *http.Request) (*reading, error) {
	if _, err := s.topic(r.PathValue("topic")); err != nil {
		return nil, err
	}
	params, err := query(r, consumeParameters...)
	if err != nil {
		return nil, err
	}
	c := &reading{server: s, params: params, group: params.Has("group")}
	if c.group { // A GET that changes something: who has read what.
		changing := *r
		changing.Method = http.MethodPost
		if err := s.sameOrigin(&changing); err != nil {
			return nil, err
		}
	}
	maxBytes, err := c.integer("max_bytes", defaultMaxBytes, 1, maxMaxBytes)
	if err != nil {
		return nil, err
	}
	wait := int64(0)
	if acceptedForm(r) != inArray {
		wait = time.Minute.Milliseconds()
	}
	if wait, err = c.integer("wait_ms", wait, 0, maxWait.Milliseconds()); err != nil {
		return nil, err
	}
	c.wait = time.Duration(wait) * time.Millisecond
	if c.text, err = c.flag("text"); err != nil {
		return nil, err
	}
	isolation, err := c.isolation()
	if err != nil {
		return nil, err
	}
	if c.group {
		err = c.readMember(r.PathValue("topic"), int(maxBytes))
		c.member.Terms.Isolation = isolation
	} else {
		err = c.readSingle(r, int(maxBytes))
		c.single.Isolation, c.single.At.Isolation = isolation, isolation
	}
	return c, err
}

// isolation reads what of transactions is to be seen. Without it that is all there is,
// as with Kafka's clients.
func (c *reading) isolation() (partition.Isolation, error) {
	switch v := c.params.Get("isolation"); v {
	case "", "read_uncommitted":
		return partition.ReadUncommitted, nil
	case "read_committed":
		return partition.ReadCommitted, nil
	default:
		return 0, badRequest("isolation is %q: read_committed or read_uncommitted", clip(v))
	}
}

func (c *reading) readMember(topic string, maxBytes int) (err error) {
	for _, name := range []string{"partition", "offset", "timestamp", "timestamp_ms"} {
		if c.params.Has(name) {
			return badRequest("%s stands beside group: the group decides where to read; POST .../seek moves it", name)
		}
	}
	c.member = session.Consume{
		Group: c.params.Get("group"), Topic: topic, Member: c.params.Get("member"), MaxBytes: maxBytes,
	}
	if c.member.Commit, err = c.flag("auto_commit"); err != nil {
		return err
	}
	if c.member.Rewind, err = c.flag("rewind"); err != nil {
		return err
	}
	if c.member.Commit && c.member.Rewind {
		return badRequest("rewind goes back to the commit, and auto_commit moves that on: give one of them")
	}
	switch v := c.params.Get("auto_offset_reset"); v {
	case "", "earliest":
	case "latest":
		c.member.Terms.Reset = session.Latest
	default:
		return badRequest("auto_offset_reset is %q: earliest or latest", clip(v))
	}
	timeout, err := c.integer("session_timeout_ms", 0, 0, maxSessionTimeout.Milliseconds())
	c.member.Terms.Timeout = time.Duration(timeout) * time.Millisecond
	return err
}

func (c *reading) readSingle(r *http.Request, maxBytes int) error {
	for _, name := range []string{"member", "auto_commit", "rewind", "auto_offset_reset", "session_timeout_ms"} {
		if c.params.Has(name) {
			return badRequest("%s is for members of a group: give group as well", name)
		}
	}
	if !c.params.Has("partition") {
		return badRequest("give group, to read as a member of it, or partition and offset")
	}
	number, err := c.integer("partition", 0, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	c.single = session.Read{Topic: r.PathValue("topic"), Partition: int32(number), MaxBytes: maxBytes}
	if c.single.At, err = c.place(); err != nil {
		return err
	}
	// A browser that lost its event stream says what it got last.
	last, after, ok := strings.Cut(r.Header.Get("Last-Event-ID"), ":")
	if offset, err := strconv.ParseInt(after, 10, 64); ok && err == nil && last == strconv.Itoa(int(number)) {
		c.single.At = session.Place{Offset: kafka.Offset(offset) + 1}
	}
	return nil
}

// place reads where to begin.
func (c *reading) place() (session.Place, error) {
	given := 0
	for _, name := range []string{"offset", "timestamp", "timestamp_ms"} {
		if c.params.Has(name) {
			given++
		}
	}
	if given != 1 {
		return session.Place{}, badRequest("give one of offset (a number, earliest or latest), timestamp and timestamp_ms")
	}
	switch c.params.Get("offset") {
	case "earliest":
		return session.Place{Kind: session.AtEarliest}, nil
	case "latest":
		return session.Place{Kind: session.AtLatest}, nil
	}
	if c.params.Has("offset") {
		n, err := c.integer("offset", 0, 0, math.MaxInt64)
		return session.Place{Offset: kafka.Offset(n)}, err
	}
	if c.params.Has("timestamp") {
		n, err := c.integer("timestamp", 0, 0, maxTimestampMs)
		return session.Place{Kind: session.AtTimestamp, TimestampMs: millis(n)}, err
	}
	n, err := c.integer("timestamp_ms", 0, 0, maxTimestampMs)
	return session.Place{Kind: session.AtTimestamp, TimestampMs: n}, err
}

// millis reads a timestamp that is in seconds, as answers have it, or in
// milliseconds, as Kafka's tools have it: in seconds it would be thousands of
// years away.
func millis(timestamp int64) int64 {
	const farAway = 100_000_000_000
	if timestamp >= farAway {
		return timestamp
	}
	return timestamp * 1000
}

func (c *reading) integer(name string, missing, low, high int64) (int64, error) {
	if !c.params.Has(name) {
		return missing, nil
	}
	text := c.params.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, badRequest("%s is %q: a whole number from %d to %d", name, clip(text), low, high)
	}
	return n, nil
}

func (c *reading) flag(name string) (bool, error) {
	switch text := c.params.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, badRequest("%s is %q: true or false", name, clip(text))
	}
}

// read reads a page of records and notes where to read on.
func (c *reading) read(ctx context.Context, wait time.Duration, p *page) (session.Batch, error) {
	mark := p.Mark()
	b, err := c.readOnce(ctx, wait, p)
	if err == nil && p.unpaid() {
		b.Return()
		p.Rewind(mark)
		return session.Batch{}, noMemory()
	}
	if errors.Is(err, context.Canceled) { // Or else the client is gone, and it makes no difference.
		err = &kafka.Error{Code: kafka.ErrCoordinatorNotAvailable, Message: "the broker is stopping: ask another one, or try again"}
	}
	return b, err
}

func (c *reading) readOnce(ctx context.Context, wait time.Duration, p *page) (session.Batch, error) {
	if !c.group {
		r := c.single
		r.Wait = wait
		next, n, err := c.server.Sessions.Read(ctx, r, p)
		if err == nil {
			c.next = []session.Next{next}
			c.single.At = session.Place{Offset: next.Offset}
		}
		return session.Batch{Records: n}, err
	}
	r := c.member
	r.Wait = wait
	b, err := c.server.Sessions.Consume(ctx, r, p)
	if err != nil {
		return b, err
	}
	c.member.Member, c.generation = b.Member, b.Generation
	c.member.Rewind = false
	for _, n := range b.Next {
		c.note(n)
	}
	return b, nil
}

// note remembers where to read on in a partition.
func (c *reading) note(n session.Next) {
	for i := range c.next {
		if c.next[i].Partition == n.Partition {
			c.next[i] = n
			return
		}
	}
	c.next = append(c.next, n)
}

// appendEnd appends the fields of the answer that are not records.
func (c *reading) appendEnd(dst []byte) []byte {
	dst = append(dst, `"next_offsets":`...)
	dst = appendOffsets(dst, c.next)
	if c.group {
		dst = append(dst, `,"member":`...)
		dst = appendText(dst, []byte(c.member.Member))
		dst = append(dst, `,"generation":`...)
		dst = strconv.AppendInt(dst, int64(c.generation), 10)
	}
	if c.stale {
		dst = append(dst, `,"stale":true`...)
	}
	return dst
}
