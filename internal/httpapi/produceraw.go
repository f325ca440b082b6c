package httpapi

import (
	"encoding/base64"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/nearest"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/relay"
)

// rawParameters are what a raw request may have in its query, or as header fields
// with the prefix Strandline- and dashes. It is constant.
var rawParameters = []string{"key", "key_base64", "partition", "timestamp_ms", "timeout_ms", "idempotency_key", "acks"}

// txnRawParameters are those in a transaction. It is constant.
var txnRawParameters = append(slices.Clone(rawParameters[:6]), "topic", "request")

// Prefixes of a raw request's record headers, in the query and as header fields.
const (
	headerParameter = "header."
	headerField     = "Strandline-Header-"
	settingField    = "Strandline-"
)

// readRaw reads a record whose value is the body as it is.
func (c *produceCall) readRaw(r *http.Request, body []byte) error {
	c.begin()
	names := rawParameters
	if c.txn != nil {
		names = txnRawParameters
	}
	values, err := rawValues(r, names)
	if err != nil {
		return err
	}
	one := c.add()
	one.value = body
	if one.value == nil {
		one.value = []byte{}
	}
	one.headers = rawHeaders(r)
	for _, h := range one.headers {
		if idempotency.Reserved(h.Key) {
			return badRequest("a header may not be called %s: give an idempotency_key", h.Key)
		}
	}
	for _, name := range names {
		text, ok := values[name]
		if !ok {
			continue
		}
		if err := c.readParameter(name, text); err != nil {
			return err
		}
	}
	if c.txn != nil {
		if missing := c.txn.missing(func(name string) bool { _, ok := values[name]; return ok }); missing != "" {
			return badRequest("%s", missing)
		}
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return c.takeKeyField(key)
	}
	return nil
}

// rawValues returns the settings of a raw request by name, of those that it may have.
func rawValues(r *http.Request, names []string) (map[string]string, error) {
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is malformed: %v", err)
	}
	values := map[string]string{}
	for name, given := range all {
		if strings.HasPrefix(name, headerParameter) {
			continue
		}
		if !slices.Contains(names, name) {
			return nil, unknownParameter(name, names)
		}
		if len(given) > 1 {
			return nil, badRequest("query parameter %s is given %d times: give it once", name, len(given))
		}
		values[name] = given[0]
	}
	for field, given := range r.Header {
		if !isSetting(field) || strings.HasPrefix(field, headerField) {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(field[len(settingField):], "-", "_"))
		if !slices.Contains(names, name) {
			return nil, unknownField(field, name, names)
		}
		if _, twice := values[name]; twice || len(given) > 1 {
			return nil, badRequest("%s is given twice: give it once, in the query or as the field %s", name, fieldOf(name))
		}
		values[name] = given[0]
	}
	return values, nil
}

// isSetting reports whether a header field says something about the record. Those of
// brokers among themselves do not.
func isSetting(field string) bool {
	return strings.HasPrefix(field, settingField) && !strings.HasPrefix(field, relay.FieldPrefix)
}

// noSettings refuses header fields that only a raw request may have.
func noSettings(r *http.Request) error {
	for field := range r.Header {
		if isSetting(field) {
			return badRequest("the header field %s is for a body that is the value as it is (%s): with %s all of it stands in the body",
				clip(field), typeRaw, typeJSON)
		}
	}
	return nil
}

// fieldOf returns the header field of a parameter.
func fieldOf(name string) string {
	return http.CanonicalHeaderKey(settingField + strings.ReplaceAll(name, "_", "-"))
}

// unknownField refuses a header field that looks like a setting: nobody else would
// miss one that is misspelled.
func unknownField(field, name string, names []string) error {
	if near := nearest.To(name, slices.Values(names)); near != "" {
		return badRequest("unknown header field %s: did you mean %s?", clip(field), fieldOf(near))
	}
	return badRequest("unknown header field %s: see /v1/openapi.json for those there are, and a header of the record is %sNAME",
		clip(field), headerField)
}

// readParameter reads a setting of a raw request.
func (c *produceCall) readParameter(name, text string) error {
	r := &c.records[0]
	var err error
	switch name {
	case "key":
		r.key = []byte(text)
	case "key_base64":
		if r.key != nil {
			return badRequest("the key is given twice: in key as text, and in key_base64")
		}
		if r.key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return badRequest("key_base64: not valid base64 (in a query, + is written %%2B): %v", err)
		}
	case "partition":
		var n int64
		n, err = wholeNumber(name, text, 0, math.MaxInt32)
		r.partition = int32(n)
	case "timestamp_ms":
		r.timestampMs, err = wholeNumber(name, text, 0, maxTimestampMs)
	case "timeout_ms":
		var n int64
		n, err = wholeNumber(name, text, 1, maxProduceTimeout.Milliseconds())
		c.timeout = time.Duration(n) * time.Millisecond
	case "acks":
		var ok bool
		if c.acks, ok = acksOf(text); !ok {
			return badRequest("acks: want 0, 1 or all, not %q", clip(text))
		}
	case "topic":
		c.txn.topic = text
	case "request":
		var n int64
		n, err = wholeNumber(name, text, 0, maxRequest)
		c.txn.request = int32(n)
	case "idempotency_key":
		if c.txn != nil {
			return badRequest("idempotency_key: %s", noKeysInside)
		}
		r.idempotencyKey = []byte(text)
		if wrong := checkIdempotencyKey(r.idempotencyKey); wrong != "" {
			return badRequest("idempotency_key: %s", wrong)
		}
	}
	return err
}

// wholeNumber reads a number of the query.
func wholeNumber(name, text string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, badRequest("%s: want a whole number from %d to %d, not %q", name, low, high, clip(text))
	}
	return n, nil
}

// rawHeaders returns the headers of a raw request's record: those of the query in
// the order of their names, which keep their case, and those of header fields,
// which have none.
func rawHeaders(r *http.Request) []record.Header {
	var out []record.Header
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if key, ok := strings.CutPrefix(name, headerParameter); ok {
			for _, value := range query[name] {
				out = append(out, record.Header{Key: key, Value: []byte(value)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if key, ok := strings.CutPrefix(name, headerField); ok {
			for _, value := range r.Header[name] {
				out = append(out, record.Header{Key: strings.ToLower(key), Value: []byte(value)})
			}
		}
	}
	return out
}
