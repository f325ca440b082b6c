package record

import (
	"iter"

	"github.com/strandline/strandline/internal/kafka"
)

// Header is one header of a record. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a batch. Key and Value are nil if null. They alias
// the batch, or what it was decompressed to.
type Record struct {
	Offset      kafka.Offset
	OffsetDelta int32
	Attributes  int8
	Timestamp   int64 // Milliseconds; the batch's max timestamp under LogAppendTime.
	Key         []byte
	Value       []byte
	Headers     []Header
}

// Records iterates over the records of a batch, control records included. At
// the first that is malformed it yields an *InvalidError and ends. It checks
// neither the checksum nor what ValidateProduced checks beyond the form, and
// accepts the gaps that compaction leaves.
//
// An uncompressed batch's records alias its bytes. A compressed one is
// decompressed, up to maxDecompressed bytes, into memory of its own that lives
// as long as a record is referred to. Headers is good until the next record.
func (b Batch) Records(maxDecompressed int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		payload := b.payload()
		if b.Codec() != CodecNone {
			var err error
			if payload, err = Decompress(b.Codec(), nil, payload, maxDecompressed); err != nil {
				yield(Record{}, invalidPayload(WholeBatch, err, maxDecompressed))
				return
			}
		}
		b.yieldRecords(payload, yield)
	}
}

// Records is Batch.Records into memory that d keeps: records are good until the
// next use of d.
func (d *Decompressor) Records(b Batch, maxDecompressed int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		payload := b.payload()
		if b.Codec() != CodecNone {
			var err error
			d.records, err = d.Decompress(b.Codec(), d.records[:0], payload, maxDecompressed)
			if err != nil {
				yield(Record{}, invalidPayload(WholeBatch, err, maxDecompressed))
				return
			}
			payload = d.records
		}
		b.yieldRecords(payload, yield)
	}
}

func (b Batch) yieldRecords(payload []byte, yield func(Record, error) bool) {
	var (
		at      fields
		headers []Header
	)
	count, i := b.RecordCount(), 0
	for index := range count {
		length, next := varint32(payload, i)
		if next < 0 {
			yield(Record{}, invalidRecord(index, badError(next)))
			return
		}
		if length < minRecord || length > int64(len(payload)-next) {
			yield(Record{}, invalidRecord(index, errRecordSize))
			return
		}
		i = next + int(length)
		body := payload[next:i:i]
		if bad := at.parse(body); bad < 0 {
			yield(Record{}, invalidRecord(index, badError(bad)))
			return
		}
		r := b.record(&at, body)
		if at.headerCount > 0 {
			headers = at.appendHeaders(headers[:0], body)
			r.Headers = headers
		}
		if !yield(r, nil) {
			return
		}
	}
	if i != len(payload) {
		yield(Record{}, invalid(ReasonInvalidRecord, "%d bytes follow the last of %d records",
			len(payload)-i, count))
	}
}

// record makes the record of body, without its headers.
func (b Batch) record(at *fields, body []byte) Record {
	r := Record{
		Offset:      b.BaseOffset() + kafka.Offset(at.offsetDelta),
		OffsetDelta: int32(at.offsetDelta),
		Attributes:  int8(at.attributes),
		Timestamp:   b.BaseTimestamp() + at.timestampDelta,
		Key:         nullable(body, at.keyAt, at.keyLen),
		Value:       nullable(body, at.valueAt, at.valueLen),
	}
	if b.TimestampType() == LogAppendTime {
		r.Timestamp = b.MaxTimestamp()
	}
	return r
}

func nullable(body []byte, i int, length int64) []byte {
	if length < 0 {
		return nil
	}
	end := i + int(length)
	return body[i:end:end]
}

// appendHeaders appends the headers of a body that parse accepted.
func (f *fields) appendHeaders(dst []Header, body []byte) []Header {
	i := f.headersAt
	for range f.headerCount {
		var (
			h      Header
			length int64
		)
		length, i = varint32(body, i)
		h.Key = string(body[i : i+int(length)])
		i += int(length)
		length, i = varint32(body, i)
		h.Value = nullable(body, i, length)
		i += int(max(length, 0))
		dst = append(dst, h)
	}
	return dst
}
