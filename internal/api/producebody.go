package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// errBodyShort says that a body ends before what it announces.
var errBodyShort = errors.New("the request ends early")

// bodyReader reads the protocol's primitive types in place. After the first
// failure everything it returns is zero.
type bodyReader struct {
	src      []byte
	flexible bool // Compact strings and arrays, and tagged fields.
	err      error
}

// read reads a Produce request into topics and results. Names and records alias
// the body.
//
//	transactional id | acks int16 | timeout int32 | topics, each:
//	  name, or id from version 13 on | partitions, each: index int32 | records
func (r *produceReply) read(body []byte) error {
	in := bodyReader{src: body, flexible: r.version >= 9}
	r.topics, r.results = r.topics[:0], r.results[:0]
	r.transactionalID = in.nullableString()
	r.acks = partition.Acks(in.int16())
	r.timeout = time.Duration(max(in.int32(), 0)) * time.Millisecond
	for range in.arrayLen() {
		t := producedTopic{first: len(r.results)}
		if len(r.topics) == maxElements {
			return fmt.Errorf("it has more than %d topics: send fewer at once", maxElements)
		}
		if r.version >= 13 {
			copy(t.id[:], in.bytes(len(t.id)))
		} else {
			t.name = in.string()
		}
		n := in.arrayLen()
		r.results = slices.Grow(r.results, min(n, len(in.src)/minPartitionBytes, maxElements))
		for range n {
			p := produced{index: in.int32(), record: -1, info: nothingAppended()}
			p.records = in.nullableBytes()
			in.skipTags()
			if in.err != nil {
				return in.err
			}
			if len(r.results) == maxElements {
				return fmt.Errorf("it has more than %d partitions: send fewer at once", maxElements)
			}
			r.results = append(r.results, p)
		}
		in.skipTags()
		if in.err != nil {
			return in.err
		}
		t.end = len(r.results)
		r.topics = append(r.topics, t)
	}
	in.skipTags()
	return in.err
}

// minPartitionBytes is what a partition takes in the body at least.
const minPartitionBytes = 6

// nothingAppended is what an answer says where nothing was.
func nothingAppended() commitlog.AppendInfo {
	return commitlog.AppendInfo{
		BaseOffset: kafka.NoOffset, LogAppendTimeMs: -1, LogStartOffset: kafka.NoOffset,
	}
}

// bytes returns the next n bytes, or nil if there are fewer.
func (b *bodyReader) bytes(n int) []byte {
	if b.err != nil || n < 0 || n > len(b.src) {
		b.fail()
		return nil
	}
	out := b.src[:n:n]
	b.src = b.src[n:]
	return out
}

func (b *bodyReader) fail() {
	if b.err == nil {
		b.err = errBodyShort
	}
	b.src = nil
}

func (b *bodyReader) int16() int16 {
	if s := b.bytes(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (b *bodyReader) int32() int32 {
	if s := b.bytes(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

// uvarint reads a varint of at most 32 bits.
func (b *bodyReader) uvarint() int {
	v, n := binary.Uvarint(b.src)
	if b.err != nil || n <= 0 || v > 1<<32-1 {
		b.fail()
		return 0
	}
	b.src = b.src[n:]
	return int(v)
}

// arrayLen reads the length of an array; it is 0 for null. Every element takes
// a byte at least.
func (b *bodyReader) arrayLen() int {
	n := 0
	if b.flexible {
		n = b.uvarint() - 1
	} else {
		n = int(b.int32())
	}
	if n > len(b.src) {
		b.fail()
	}
	if b.err != nil {
		return 0
	}
	return max(n, 0)
}

// nullableBytes reads bytes; they are nil for null.
func (b *bodyReader) nullableBytes() []byte {
	n := 0
	if b.flexible {
		n = b.uvarint() - 1
	} else {
		n = int(b.int32())
	}
	if n < 0 {
		return nil
	}
	return b.bytes(n)
}

// maxString is the longest string of the protocol. Compact ones could be longer on the wire,
// but what is told of them in another version, or kept in a record, could not.
const maxString = math.MaxInt16

// nullableString reads a string; it is empty for null. It aliases the body.
func (b *bodyReader) nullableString() string {
	n := 0
	if b.flexible {
		n = b.uvarint() - 1
	} else {
		n = int(b.int16())
	}
	if n <= 0 {
		return ""
	}
	if n > maxString && b.err == nil {
		b.src, b.err = nil, fmt.Errorf("it has a string of %d bytes: the protocol's limit is %d", n, maxString)
	}
	s := b.bytes(n)
	return unsafe.String(unsafe.SliceData(s), len(s))
}

// string reads a string that may not be null; an empty one names nothing, so
// the two need not be told apart.
func (b *bodyReader) string() string { return b.nullableString() }

// skipTags skips a section of tagged fields, if the version has them.
func (b *bodyReader) skipTags() {
	if !b.flexible {
		return
	}
	for range b.uvarint() {
		b.uvarint()
		b.bytes(b.uvarint())
		if b.err != nil {
			return
		}
	}
}
