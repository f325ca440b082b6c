package httpapi

import (
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/strictjson"
	"github.com/strandline/strandline/internal/topics"
)

// HeaderRequest is a header of a record to produce: its value is in base64 in
// value, or text in value_text; a value of null is null.
type HeaderRequest struct {
	Key       string  `json:"key"`
	Value     []byte  `json:"value"`
	ValueText *string `json:"value_text"`
}

// RecordRequest is a record to produce. Its key is text in key or base64 in
// key_base64, its value base64 in value or text in value_text; a value of null is
// a tombstone.
type RecordRequest struct {
	Key            *string         `json:"key"`
	KeyBase64      []byte          `json:"key_base64"`
	Value          []byte          `json:"value"`
	ValueText      *string         `json:"value_text"`
	Headers        []HeaderRequest `json:"headers"`
	Partition      *int32          `json:"partition"`
	TimestampMs    *int64          `json:"timestamp_ms"`
	IdempotencyKey *string         `json:"idempotency_key"`
}

// ProduceRequest is one record, or several, and how safe they are to be. It is
// what readJSON reads, which does so in place.
type ProduceRequest struct {
	RecordRequest
	TimeoutMs int64           `json:"timeout_ms"`
	Records   []RecordRequest `json:"records"`
	Acks      string          `json:"acks"`
}

// Fields of a record and of a request, by their index in the names.
const (
	fieldKey = iota
	fieldKeyBase64
	fieldValue
	fieldValueText
	fieldHeaders
	fieldPartition
	fieldTimestampMs
	fieldIdempotencyKey
	fieldTimeoutMs
	fieldRecords
	fieldAcks // And all after it: in a transaction others stand here.
)

// recordFields is how many of the names are a record's.
const recordFields = fieldTimeoutMs

// fieldNames are the names of a request's fields; those of a record come first.
// It is constant.
var fieldNames = []string{
	"key", "key_base64", "value", "value_text", "headers", "partition", "timestamp_ms", "idempotency_key",
	"timeout_ms", "records", "acks",
}

// headerNames are the names of a header's fields. It is constant.
var headerNames = []string{"key", "value", "value_text"}

// produceRecord is a record on its way, and then what became of it.
type produceRecord struct {
	key, value     []byte // Nil for null.
	headers        []record.Header
	idempotencyKey []byte // Nil for none.
	partition      int32  // -1 for any.
	timestampMs    int64  // record.NoTimestamp for now.

	keyDigest, content idempotency.Digest
	sameAs             int  // The record of the call that this one repeats, or -1.
	chosen             bool // The partition is not the client's wish.
	dated              bool // The timestamp is not the client's wish.
	marked             bool // The headers end in the mark of the idempotency key.
	err                error
	offset             kafka.Offset
	part               *partition.Partition // Where it is; nil before.
	leaderEpoch        kafka.LeaderEpoch    // Of part, when it was appended.
	placed             bool                 // Another broker has it.
	numbered           bool                 // Its place in a transaction makes it safe to send it again.
	done               bool                 // It is where it should be, and stays there.
}

// maxTimestampMs bounds timestamps, so that no sum of one leaves 64 bits.
const maxTimestampMs = 1 << 62

// produceCall is a produce request. It is used again for another one.
type produceCall struct {
	server  *server
	topic   *topics.View
	acks    partition.Acks
	timeout time.Duration
	left    time.Duration  // Of timeout.
	several bool           // The request has a list of records.
	inside  bool           // Another broker has sent it.
	txn     *inTransaction // That the records are part of; nil for none.
	begun   bool           // It was tried once to deliver it.
	records []produceRecord

	json    strictjson.Reader
	arena   []byte // Keys and values, decoded.
	headers []record.Header
	builder *record.Builder
	batch   [1]record.Batch
	order   []int32     // Indexes of records, by partition.
	timer   *time.Timer // Of the wait for acks=all; stopped between calls.
	out     []byte
	charged int64 // Of the server's budget for bodies.
}

func newProduceCall(s *server) *produceCall {
	c := &produceCall{
		server: s, timer: time.NewTimer(0), builder: record.NewBuilder(record.CodecNone, record.DefaultLevel),
	}
	c.timer.Stop()
	return c
}

// recycle gives the call back.
func (c *produceCall) recycle() {
	c.server.bodies.Release(c.charged)
	c.charged = 0
	if cap(c.arena) > maxKeptBody || cap(c.records) > maxRecords/10 || cap(c.headers) > maxHeaders/100 {
		return
	}
	clear(c.records)
	clear(c.headers)
	c.topic, c.txn, c.records, c.headers, c.arena = nil, nil, c.records[:0], c.headers[:0], c.arena[:0]
	c.builder.Reset()
	c.json.Reset(nil)
	c.server.calls.Put(c)
}

// freeCallBytes is up to where a call takes no share of the budget.
const freeCallBytes = 64 << 10

// charge takes what the records of a call are in memory out of the budget for
// bodies: a few bytes of a body can become a record.
func (c *produceCall) charge() error {
	size := int64(len(c.records))*int64(unsafe.Sizeof(produceRecord{})) +
		int64(len(c.headers))*int64(unsafe.Sizeof(record.Header{})) + int64(len(c.arena))
	if size <= freeCallBytes {
		return nil
	}
	if !c.server.bodies.TryAcquire(size) {
		return noMemory()
	}
	c.charged = size
	return nil
}

// begin settles what a request has that does not say otherwise.
func (c *produceCall) begin() {
	c.acks, c.timeout, c.several, c.begun = partition.AcksAll, defaultProduceTimeout, false, false
}

func (c *produceCall) add() *produceRecord {
	c.records = append(c.records, produceRecord{
		partition: -1, timestampMs: record.NoTimestamp, sameAs: -1, offset: kafka.NoOffset, numbered: c.txn != nil,
	})
	return &c.records[len(c.records)-1]
}

// readJSON reads a ProduceRequest.
func (c *produceCall) readJSON(r *http.Request, body []byte) error {
	if _, err := query(r); err != nil {
		return err
	}
	if err := noSettings(r); err != nil {
		return err
	}
	if len(body) == 0 {
		return badRequest("the request has no body: send a JSON object")
	}
	c.begin()
	in := &c.json
	in.Reset(body)
	single := c.add()
	names := fieldNames
	if c.txn != nil {
		names = txnFieldNames
	}
	o := in.Object(names)
	for i, ok := in.Next(&o); ok; i, ok = in.Next(&o) {
		switch {
		case i < recordFields:
			c.readField(in, i, single)
		case i == fieldTimeoutMs:
			c.timeout = time.Duration(in.Int(1, maxProduceTimeout.Milliseconds())) * time.Millisecond
		case i == fieldRecords:
			c.several = true
			c.readRecords(in)
		case c.txn != nil:
			c.txn.readField(in, i)
		default:
			c.acks = readAcks(in, in.String())
		}
	}
	if in.Err() == nil {
		c.checkObject(in, &o)
	}
	if c.txn != nil && in.Err() == nil {
		c.txn.checkObject(in, &o)
	}
	if err := in.End(); err != nil {
		return badRequest("%v", err)
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return c.takeKeyField(key)
	}
	return nil
}

// checkObject checks the fields of a request against each other.
func (c *produceCall) checkObject(in *strictjson.Reader, o *strictjson.Object) {
	if !c.several {
		checkRecord(in, o)
		return
	}
	for i, name := range fieldNames[:recordFields] {
		if o.Has(i) {
			in.Fail("%s stands beside records: it belongs into each of them", name)
		}
	}
	c.records = append(c.records[:0], c.records[1:]...)
	if len(c.records) == 0 && in.Err() == nil {
		in.Fail("records is empty: send at least one")
	}
}

// checkRecord checks the fields of a record against each other.
func checkRecord(in *strictjson.Reader, o *strictjson.Object) {
	switch {
	case o.Has(fieldKey) && o.Has(fieldKeyBase64):
		in.Fail("the key is given twice: in key as text, and in key_base64")
	case o.Has(fieldValue) && o.Has(fieldValueText):
		in.Fail("the value is given twice: in value, in base64, and in value_text")
	case !o.Has(fieldValue) && !o.Has(fieldValueText):
		in.Fail("the value is missing: give value, in base64, or value_text; null makes a tombstone")
	}
}

func (c *produceCall) readRecords(in *strictjson.Reader) {
	a := in.Array()
	for in.More(&a) {
		if len(c.records) > maxRecords {
			in.Fail("there are more than %d records: send fewer at a time", maxRecords)
			return
		}
		r := c.add()
		o := in.Object(fieldNames[:recordFields])
		for i, ok := in.Next(&o); ok; i, ok = in.Next(&o) {
			c.readField(in, i, r)
		}
		if in.Err() == nil {
			checkRecord(in, &o)
		}
	}
}

// readField reads a field of a record.
func (c *produceCall) readField(in *strictjson.Reader, i int, r *produceRecord) {
	if i != fieldHeaders && in.Null() {
		return // As if it were not given; of a value, a tombstone.
	}
	switch i {
	case fieldKey:
		r.key = c.taken(in.Text(c.arena))
	case fieldKeyBase64:
		r.key = c.taken(in.Base64(c.arena))
	case fieldValue:
		r.value = c.taken(in.Base64(c.arena))
	case fieldValueText:
		r.value = c.taken(in.Text(c.arena))
	case fieldHeaders:
		c.readHeaders(in, r)
	case fieldPartition:
		r.partition = int32(in.Int(0, 1<<31-1))
	case fieldTimestampMs:
		r.timestampMs = in.Int(0, maxTimestampMs)
	case fieldIdempotencyKey:
		r.idempotencyKey = c.taken(in.Text(c.arena))
		if c.txn != nil {
			in.Fail("%s", noKeysInside)
		}
		if in.Err() == nil {
			if err := checkIdempotencyKey(r.idempotencyKey); err != "" {
				in.Fail("%s", err)
			}
		}
	}
}

// taken returns what was appended to the arena, which may have moved.
func (c *produceCall) taken(grown []byte) []byte {
	n := len(c.arena)
	if c.arena = grown; grown == nil {
		return []byte{} // An empty text is no null.
	}
	return grown[n:len(grown):len(grown)]
}

func (c *produceCall) readHeaders(in *strictjson.Reader, r *produceRecord) {
	first := len(c.headers)
	a := in.Array()
	for in.More(&a) {
		if len(c.headers) == maxHeaders {
			in.Fail("the records have more than %d headers: send fewer at a time", maxHeaders)
			return
		}
		c.headers = append(c.headers, c.readHeader(in))
	}
	r.headers = c.headers[first:len(c.headers):len(c.headers)]
}

func (c *produceCall) readHeader(in *strictjson.Reader) record.Header {
	var h record.Header
	o := in.Object(headerNames)
	for i, ok := in.Next(&o); ok; i, ok = in.Next(&o) {
		switch {
		case i == 0:
			h.Key = in.String()
			if in.Err() == nil && idempotency.Reserved(h.Key) {
				in.Fail("a header may not be called %s: give an idempotency_key", h.Key)
			}
		case in.Null():
		case i == 1:
			h.Value = c.taken(in.Base64(c.arena))
		default:
			h.Value = c.taken(in.Text(c.arena))
		}
	}
	switch {
	case in.Err() != nil:
	case !o.Has(0):
		in.Fail("the header has no key")
	case o.Has(1) && o.Has(2):
		in.Fail("the header's value is given twice: in value, in base64, and in value_text")
	case !o.Has(1) && !o.Has(2):
		in.Fail("the header has no value: give value, in base64, or value_text; or null")
	}
	return h
}

// acksOf returns what a text means.
func acksOf(text string) (partition.Acks, bool) {
	switch text {
	case "0":
		return partition.AcksNone, true
	case "1":
		return partition.AcksLeader, true
	case "all":
		return partition.AcksAll, true
	}
	return partition.AcksAll, false
}

func readAcks(in *strictjson.Reader, text string) partition.Acks {
	acks, ok := acksOf(text)
	if !ok && in.Err() == nil {
		in.Fail(`want "0", "1" or "all", not %q`, clip(text))
	}
	return acks
}

// checkIdempotencyKey says what is wrong with a key, or "".
func checkIdempotencyKey(key []byte) string {
	switch {
	case len(key) == 0:
		return "the idempotency key is empty: leave it out, or make one that is the request's own"
	case len(key) > idempotency.MaxKeyBytes:
		return "the idempotency key has " + strconv.Itoa(len(key)) + " bytes: use at most " +
			strconv.Itoa(idempotency.MaxKeyBytes)
	}
	return ""
}

// takeKeyField takes the idempotency key of the HTTP header field.
func (c *produceCall) takeKeyField(key string) error {
	if c.txn != nil {
		return badRequest("Idempotency-Key: %s", noKeysInside)
	}
	if c.several {
		return badRequest("Idempotency-Key is for one record: give each of records an idempotency_key of its own")
	}
	if c.records[0].idempotencyKey != nil {
		return badRequest("the idempotency key is given twice: in the body or query, and in Idempotency-Key")
	}
	if err := checkIdempotencyKey([]byte(key)); err != "" {
		return badRequest("Idempotency-Key: %s", err)
	}
	c.records[0].idempotencyKey = []byte(key)
	return nil
}
