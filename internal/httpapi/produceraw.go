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
	"github.com/strandline/strandline/internal/record"
)

// rawParameters are what a raw request may have in its query, or as header fields
// with the prefix Strandline- and dashes. It is constant.
var rawParameters = []string{"key", "key_base64", "partition", "timestamp_ms", "idempotency_key", "acks", "timeout_ms"}

// Prefixes of a raw request's record headers, in the query and as header fields.
const (
	headerParameter = "header."
	headerField     = "Strandline-Header-"
	settingField    = "Strandline-"
)

// readRaw reads a record whose value is the body as it is.
func (c *produceCall) readRaw(r *http.Request, body []byte) error {
	c.begin()
	values, err := rawValues(r)
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
	for _, name := range rawParameters {
		text, ok := values[name]
		if !ok {
			continue
		}
		if err := c.readParameter(name, text); err != nil {
			return err
		}
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return c.takeKeyField(key)
	}
	return nil
}

// rawValues returns the settings of a raw request by name.
func rawValues(r *http.Request) (map[string]string, error) {
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is malformed: %v", err)
	}
	values := map[string]string{}
	for name, given := range all {
		if strings.HasPrefix(name, headerParameter) {
			continue
		}
		if !slices.Contains(rawParameters, name) {
			return nil, unknownParameter(name, rawParameters)
		}
		if len(given) > 1 {
			return nil, badRequest("query parameter %s is given %d times: give it once", name, len(given))
		}
		values[name] = given[0]
	}
	for _, name := range rawParameters {
		field := settingField + strings.ReplaceAll(name, "_", "-")
		given := r.Header.Values(field)
		if len(given) == 0 {
			continue
		}
		if _, twice := values[name]; twice || len(given) > 1 {
			return nil, badRequest("%s is given twice: give it once, in the query or as the field %s", name, field)
		}
		values[name] = given[0]
	}
	return values, nil
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
	case "idempotency_key":
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
