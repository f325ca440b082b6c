package record

import "errors"

// A record, after the varint of its length:
//
//	attributes  int8     unused
//	timestamp   varlong  delta to the batch's base timestamp
//	offset      varint   delta to the batch's base offset
//	key         varint length, bytes; -1 is null
//	value       varint length, bytes; -1 is null
//	headers     varint count, then each: varint length and bytes of its key,
//	            varint length and bytes of its value; only a value may be null
const (
	minRecord = 6 // The least bytes of a record, its length apart.
	minHeader = 2 // The least bytes of a header.
)

var (
	errLength      = errors.New("a length is negative")
	errHeaderCount = errors.New("it declares more headers than its bytes can hold")
	errTrailing    = errors.New("it has bytes after its last field")
	errRecordSize  = errors.New("it declares a size that its batch does not have")
)

// More reasons for a negative position, after badTruncated and badVarint.
const (
	badLength      = -3
	badHeaderCount = -4
	badTrailing    = -5
)

func badError(bad int) error {
	switch bad {
	case badVarint:
		return errVarint
	case badLength:
		return errLength
	case badHeaderCount:
		return errHeaderCount
	case badTrailing:
		return errTrailing
	default:
		return errTruncated
	}
}

// fields is where the fields of one record lie in its body.
type fields struct {
	attributes     byte
	timestampDelta int64
	offsetDelta    int64
	keyLen         int64 // -1: null.
	valueLen       int64 // -1: null.
	headerCount    int64
	keyAt          int
	valueAt        int
	headersAt      int
}

// parse finds the fields of body, which is one record without its length, and
// returns 0, or what is wrong as a negative number.
func (f *fields) parse(body []byte) int {
	if len(body) < minRecord {
		return badTruncated
	}
	f.attributes = body[0]
	i := 1
	if f.timestampDelta, i = varint(body, i); i < 0 {
		return i
	}
	if f.offsetDelta, i = varint32(body, i); i < 0 {
		return i
	}
	if f.keyLen, i = varint32(body, i); i < 0 {
		return i
	}
	f.keyAt = i
	if i = skipBytes(f.keyLen, -1, i, len(body)); i < 0 {
		return i
	}
	if f.valueLen, i = varint32(body, i); i < 0 {
		return i
	}
	f.valueAt = i
	if i = skipBytes(f.valueLen, -1, i, len(body)); i < 0 {
		return i
	}
	if f.headerCount, i = varint32(body, i); i < 0 {
		return i
	}
	f.headersAt = i
	if f.headerCount == 0 && i == len(body) {
		return 0
	}
	return f.checkHeaders(body)
}

// checkHeaders walks the headers, which must fill the body to its end.
func (f *fields) checkHeaders(body []byte) int {
	i := f.headersAt
	if f.headerCount < 0 || f.headerCount > int64(len(body)-i)/minHeader {
		return badHeaderCount
	}
	for range f.headerCount {
		var length int64
		if length, i = varint32(body, i); i < 0 {
			return i
		}
		if i = skipBytes(length, 0, i, len(body)); i < 0 {
			return i
		}
		if length, i = varint32(body, i); i < 0 {
			return i
		}
		if i = skipBytes(length, -1, i, len(body)); i < 0 {
			return i
		}
	}
	if i != len(body) {
		return badTrailing
	}
	return 0
}

// skipBytes returns the position after length bytes at i; -1, if least allows
// it, is a null that has none.
func skipBytes(length, least int64, i, end int) int {
	if length < least {
		return badLength
	}
	if length > int64(end-i) {
		return badTruncated
	}
	return i + int(max(length, 0))
}
