package api

import (
	"encoding/binary"

	"github.com/strandline/strandline/internal/kafka"
)

// encoder appends the protocol's primitive types to dst. The two responses on
// the hot path (Produce, Fetch) are written with it, so that record bytes need
// no copy and an answer no garbage; all others are encoded by kmsg.
type encoder struct {
	dst      []byte
	flexible bool // Compact strings and arrays, and tagged fields.
}

func (e *encoder) int16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *encoder) int32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *encoder) int64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }
func (e *encoder) uvarint(v int) { e.dst = binary.AppendUvarint(e.dst, uint64(v)) }
func (e *encoder) code(c kafka.Code) {
	e.int16(int16(c))
}

// arrayLen writes the length of a non-null array.
func (e *encoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

// nullArray writes a null array.
func (e *encoder) nullArray() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.int32(-1)
	}
}

// bytesLen writes the length of non-null bytes; the bytes follow.
func (e *encoder) bytesLen(n int) { e.arrayLen(n) }

func (e *encoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

// nullableString writes a null for an empty string.
func (e *encoder) nullableString(s string) {
	switch {
	case s != "":
		e.string(s)
	case e.flexible:
		e.uvarint(0)
	default:
		e.int16(-1)
	}
}

func (e *encoder) topicID(id kafka.TopicID) { e.dst = append(e.dst, id[:]...) }

// noTags ends a structure that has no tagged fields.
func (e *encoder) noTags() {
	if e.flexible {
		e.dst = append(e.dst, 0)
	}
}
