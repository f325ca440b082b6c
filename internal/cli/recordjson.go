package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordJSONHelp = `A record as JSON is one object on one line:
  {"topic":"orders","partition":0,"offset":42,"timestamp":"2026-05-17T09:30:00.123Z",
   "key":"k","value":"v","headers":[{"key":"h","value":"x"}]}
Bytes that are no UTF-8 text come as key_base64, value_base64. A null key or value is null.`

// jsonRecord is a record as consume writes and produce reads it.
type jsonRecord struct {
	Topic       string       `json:"topic,omitempty"`
	Partition   *int32       `json:"partition,omitempty"`
	Offset      *int64       `json:"offset,omitempty"`
	Timestamp   string       `json:"timestamp,omitempty"`
	Key         *string      `json:"key"`
	KeyBase64   *string      `json:"key_base64,omitempty"`
	Value       *string      `json:"value"`
	ValueBase64 *string      `json:"value_base64,omitempty"`
	Headers     []jsonHeader `json:"headers,omitempty"`
}

type jsonHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 *string `json:"value_base64,omitempty"`
}

// appendRecordJSON appends a record and a line end.
func appendRecordJSON(dst []byte, r *kgo.Record) ([]byte, error) {
	j := jsonRecord{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset}
	if r.Timestamp.UnixMilli() >= 0 {
		j.Timestamp = timestamp(r.Timestamp)
	}
	j.Key, j.KeyBase64 = jsonBytes(r.Key)
	j.Value, j.ValueBase64 = jsonBytes(r.Value)
	for _, h := range r.Headers {
		header := jsonHeader{Key: h.Key}
		header.Value, header.ValueBase64 = jsonBytes(h.Value)
		j.Headers = append(j.Headers, header)
	}
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(j)
	return b.Bytes(), err
}

// jsonBytes gives bytes as text if they are text, else in base64.
func jsonBytes(b []byte) (text, encoded *string) {
	if b == nil {
		return nil, nil
	}
	s := string(b)
	if utf8.Valid(b) {
		return &s, nil
	}
	s = base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// parseRecordJSON reads a line. It takes the partition only if keepPartition,
// because records are mostly read to be written to another topic.
func parseRecordJSON(line []byte, keepPartition bool) (*kgo.Record, error) {
	var j jsonRecord
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return nil, fmt.Errorf("no record in JSON: %w", err)
	}
	if d.More() {
		return nil, errors.New("more than one JSON object in a line")
	}
	r := &kgo.Record{Partition: -1}
	if keepPartition && j.Partition != nil {
		r.Partition = *j.Partition
	}
	var err error
	if j.Timestamp != "" {
		if r.Timestamp, err = time.Parse(time.RFC3339Nano, j.Timestamp); err != nil {
			return nil, fmt.Errorf("timestamp: %w", err)
		}
	}
	if r.Key, err = bytesOfJSON("key", j.Key, j.KeyBase64); err != nil {
		return nil, err
	}
	if r.Value, err = bytesOfJSON("value", j.Value, j.ValueBase64); err != nil {
		return nil, err
	}
	for _, h := range j.Headers {
		value, err := bytesOfJSON("header "+h.Key, h.Value, h.ValueBase64)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: value})
	}
	return r, nil
}

func bytesOfJSON(what string, text, encoded *string) ([]byte, error) {
	switch {
	case text != nil && encoded != nil:
		return nil, fmt.Errorf("%s is given both as text and in base64", what)
	case text != nil:
		return []byte(*text), nil
	case encoded != nil:
		b, err := base64.StdEncoding.DecodeString(*encoded)
		if err != nil {
			return nil, fmt.Errorf("%s_base64: %w", what, err)
		}
		return b, nil
	}
	return nil, nil
}
