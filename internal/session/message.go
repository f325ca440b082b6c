package session

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// What the Sessions of one broker ask those of another, about partitions of one
// topic that the other leads. All integers are big-endian:
//
//	kind(1) topic(16) count(4), then
//	  fetch:  isolation(1) maxBytes(4) waitMs(4), count times: partition(4) from(8)
//	  locate: isolation(1) kind(1) offset(8) timestamp(8), count times: partition(4)
//
// The answer has the partitions in the same order:
//
//	count(4), count times:
//	  code(2) message(length(2), bytes) start(8) highWatermark(8) at(8) batches(length(4), bytes)
//
// To a committed reader the high watermark that is told is the last stable offset, and
// batches of aborted transactions come without their records.

// The kinds of requests.
const (
	kindFetch byte = iota + 1
	kindLocate
)

// query is a request.
type query struct {
	kind  byte
	topic kafka.TopicID
	parts []Next // With kindLocate, the offsets are not used.

	// Of kindFetch: with no maxBytes it only waits for records.
	maxBytes  int
	wait      time.Duration
	isolation partition.Isolation
	at        Place // Of kindLocate.
}

// told is what a leader says of a partition.
type told struct {
	err                  *kafka.Error // nil if all is well.
	start, highWatermark kafka.Offset
	at                   kafka.Offset // Of kindLocate.
	batches              []byte       // Of kindFetch.
}

var errGarbled = errors.New("session: a message between brokers is garbled")

func (q *query) append(dst []byte) []byte {
	dst = append(append(dst, q.kind), q.topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(q.parts)))
	if q.kind == kindFetch {
		dst = append(dst, byte(q.isolation))
		dst = binary.BigEndian.AppendUint32(dst, uint32(q.maxBytes))
		dst = binary.BigEndian.AppendUint32(dst, uint32(q.wait.Milliseconds()))
	} else {
		dst = append(dst, byte(q.at.Isolation), byte(q.at.Kind))
		dst = binary.BigEndian.AppendUint64(dst, uint64(q.at.Offset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(q.at.TimestampMs))
	}
	for _, p := range q.parts {
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.Partition))
		if q.kind == kindFetch {
			dst = binary.BigEndian.AppendUint64(dst, uint64(p.Offset))
		}
	}
	return dst
}

// cursor takes a message apart. After an error there is nothing left to take.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.rest, c.bad = nil, true
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) uint32() uint32       { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) int64() int64         { return int64(binary.BigEndian.Uint64(c.take(8))) }
func (c *cursor) offset() kafka.Offset { return kafka.Offset(c.int64()) }

// count reads how many elements of at least size bytes follow.
func (c *cursor) count(size int) int {
	n := c.uint32()
	if int64(n)*int64(size) > int64(len(c.rest)) {
		c.rest, c.bad = nil, true
		return 0
	}
	return int(n)
}

func readQuery(b []byte) (*query, error) {
	c := &cursor{rest: b}
	q := &query{kind: c.take(1)[0]}
	copy(q.topic[:], c.take(len(q.topic)))
	n := c.count(4)
	switch q.kind {
	case kindFetch:
		q.isolation = partition.Isolation(c.take(1)[0])
		q.maxBytes = int(min(c.uint32(), math.MaxInt32))
		q.wait = time.Duration(c.uint32()) * time.Millisecond
	case kindLocate:
		q.at.Isolation = partition.Isolation(c.take(1)[0])
		q.at.Kind = PlaceKind(c.take(1)[0])
		q.at.Offset, q.at.TimestampMs = c.offset(), c.int64()
	default:
		return nil, errGarbled
	}
	q.parts = make([]Next, n)
	for i := range q.parts {
		q.parts[i].Partition = int32(c.uint32())
		if q.kind == kindFetch {
			q.parts[i].Offset = c.offset()
		}
	}
	if c.bad || len(c.rest) > 0 {
		return nil, errGarbled
	}
	return q, nil
}

func appendTold(dst []byte, all []told) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(all)))
	for i := range all {
		t := &all[i]
		code, message := kafka.ErrNone, ""
		if t.err != nil {
			code, message = t.err.Code, t.err.Message[:min(len(t.err.Message), math.MaxUint16)]
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(code))
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(message)))
		dst = append(dst, message...)
		for _, o := range [...]kafka.Offset{t.start, t.highWatermark, t.at} {
			dst = binary.BigEndian.AppendUint64(dst, uint64(o))
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.batches)))
		dst = append(dst, t.batches...)
	}
	return dst
}

// readTold reads the answer about want partitions. Batches alias b.
func readTold(b []byte, want int) ([]told, error) {
	const least = 2 + 2 + 3*8 + 4
	c := &cursor{rest: b}
	all := make([]told, c.count(least))
	for i := range all {
		t := &all[i]
		code := kafka.Code(int16(binary.BigEndian.Uint16(c.take(2))))
		message := string(c.take(int(binary.BigEndian.Uint16(c.take(2)))))
		if code != kafka.ErrNone {
			t.err = &kafka.Error{Code: code, Message: message}
		}
		t.start, t.highWatermark, t.at = c.offset(), c.offset(), c.offset()
		t.batches = c.take(int(min(c.uint32(), math.MaxInt32)))
	}
	if c.bad || len(c.rest) > 0 || len(all) != want {
		return nil, errGarbled
	}
	return all, nil
}
