package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/strandline/strandline/internal/kafka"
)

// Positions of the fields in a batch. They are the wire and disk format and
// must not change.
const (
	baseOffsetAt      = 0
	batchLengthAt     = 8
	leaderEpochAt     = 12
	magicAt           = 16
	crcAt             = 17
	attributesAt      = 21
	lastOffsetDeltaAt = 23
	baseTimestampAt   = 27
	maxTimestampAt    = 35
	producerIDAt      = 43
	producerEpochAt   = 51
	baseSequenceAt    = 53
	recordCountAt     = 57
)

const (
	// HeaderSize is the size of a batch without records.
	HeaderSize = 61

	// FrameSize is how many bytes of a batch tell its size: the base offset
	// and the batch length, which counts what follows itself.
	FrameSize = leaderEpochAt

	// Magic is the version of the batch format.
	Magic = 2

	// NoTimestamp is the timestamp of a record that has none.
	NoTimestamp int64 = -1

	// NoSequence is the base sequence of a batch without a producer id.
	NoSequence int32 = -1
)

// Bits of the attributes.
const (
	codecMask         = 0x07
	timestampTypeBit  = 1 << 3
	transactionalBit  = 1 << 4
	controlBit        = 1 << 5
	deleteHorizonBit  = 1 << 6
	knownAttributeBit = codecMask | timestampTypeBit | transactionalBit | controlBit | deleteHorizonBit
)

// ErrShort says that the buffer ends before the batch does.
var ErrShort = errors.New("record: the buffer ends before the batch does")

// castagnoli makes hash/crc32 use the CRC-32C instruction. It is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says who set the timestamps of a batch.
type TimestampType int8

// The timestamp types.
const (
	CreateTime    TimestampType = 0 // The producer.
	LogAppendTime TimestampType = 1 // The broker, when it appended the batch.
)

// Batch is a view of one record batch. It owns nothing: it aliases the bytes
// that Next was given and lives as long as they do.
//
// Invariant: len(data) >= HeaderSize, and data is exactly the batch.
type Batch struct {
	data []byte
}

// Size returns how many bytes the batch that starts buf says it has, without
// looking further: ErrShort if buf is shorter than FrameSize, *InvalidError if
// no batch has that size. The bytes may not all be there.
func Size(buf []byte) (int, error) {
	if len(buf) < FrameSize {
		return 0, ErrShort
	}
	length := int32(binary.BigEndian.Uint32(buf[batchLengthAt:]))
	if length < HeaderSize-FrameSize {
		return 0, invalid(ReasonCorrupt, "batch length %d is below the least, %d", length,
			HeaderSize-FrameSize)
	}
	return int(length) + FrameSize, nil
}

// Next takes the first batch off buf. It looks at the frame only: the length
// and the magic, not at the checksum and not at the records. The error is
// ErrShort when buf ends before the batch does (an empty buf too), or an
// *InvalidError. The batch and rest alias buf.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	size, err := Size(buf)
	if err != nil {
		return Batch{}, buf, err
	}
	if len(buf) > magicAt && buf[magicAt] != Magic {
		return Batch{}, buf, invalid(ReasonInvalidRecord,
			"record batch has magic %d: only magic %d (message format of Kafka 0.11 and later) is "+
				"supported, upgrade the client",
			buf[magicAt], Magic)
	}
	if len(buf) < size {
		return Batch{}, buf, ErrShort
	}
	return Batch{data: buf[:size:size]}, buf[size:], nil
}

// IsZero reports whether the view is of nothing.
func (b Batch) IsZero() bool { return b.data == nil }

// Bytes returns the batch itself; the caller must not change it.
func (b Batch) Bytes() []byte { return b.data }

// Size returns the size of the batch in bytes.
func (b Batch) Size() int { return len(b.data) }

// BaseOffset returns the offset of the first record. In a batch that was
// compacted that record may be gone.
func (b Batch) BaseOffset() kafka.Offset {
	return kafka.Offset(binary.BigEndian.Uint64(b.data[baseOffsetAt:]))
}

// LastOffset returns the offset of the last record, inclusive.
func (b Batch) LastOffset() kafka.Offset {
	return b.BaseOffset() + kafka.Offset(b.LastOffsetDelta())
}

// LastOffsetDelta returns LastOffset - BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return b.int32(lastOffsetDeltaAt) }

// LeaderEpoch returns the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() kafka.LeaderEpoch { return kafka.LeaderEpoch(b.int32(leaderEpochAt)) }

// CRC returns the checksum that the batch carries.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b.data[crcAt:]) }

// Attributes returns the attribute bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b.data[attributesAt:])) }

// Codec returns what the records are compressed with.
func (b Batch) Codec() Codec { return Codec(b.data[attributesAt+1] & codecMask) }

// TimestampType returns who set the timestamps.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&timestampTypeBit != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&transactionalBit != 0 }

// IsControl reports whether the batch is a marker, which clients never see as
// records.
func (b Batch) IsControl() bool { return b.Attributes()&controlBit != 0 }

// DeleteHorizon returns when compaction may drop the batch's tombstones and
// marker, in milliseconds, if compaction set it. It then stands in the place of
// the base timestamp (KIP-534).
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if b.Attributes()&deleteHorizonBit == 0 {
		return 0, false
	}
	return b.int64(baseTimestampAt), true
}

// BaseTimestamp returns the timestamp that the records' deltas count from, in
// milliseconds.
func (b Batch) BaseTimestamp() int64 { return b.int64(baseTimestampAt) }

// MaxTimestamp returns the greatest timestamp in the batch, in milliseconds.
func (b Batch) MaxTimestamp() int64 { return b.int64(maxTimestampAt) }

// ProducerID returns the producer's id, kafka.NoProducerID if it is not
// idempotent.
func (b Batch) ProducerID() kafka.ProducerID { return kafka.ProducerID(b.int64(producerIDAt)) }

// ProducerEpoch returns the producer's epoch; it means nothing without a
// producer id.
func (b Batch) ProducerEpoch() kafka.ProducerEpoch {
	return kafka.ProducerEpoch(binary.BigEndian.Uint16(b.data[producerEpochAt:]))
}

// BaseSequence returns the sequence of the first record; it means nothing
// without a producer id.
func (b Batch) BaseSequence() int32 { return b.int32(baseSequenceAt) }

// LastSequence returns the sequence of the last record. Sequences wrap: the one
// after 2^31-1 is 0.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return NoSequence
	}
	return int32((int64(b.BaseSequence()) + int64(b.LastOffsetDelta())) & math.MaxInt32)
}

// RecordCount returns the number of records that the header declares.
func (b Batch) RecordCount() int32 { return b.int32(recordCountAt) }

// CheckCRC compares the checksum with the bytes it covers. The error is an
// *InvalidError with ReasonCorrupt.
func (b Batch) CheckCRC() error {
	if want, got := b.CRC(), b.computeCRC(); want != got {
		return invalid(ReasonCorrupt, "checksum of the batch is %#08x, its bytes have %#08x: they "+
			"changed on the way", want, got)
	}
	return nil
}

// Stamp sets, in place, what the leader decides: the base offset and the leader
// epoch. The checksum does not cover them.
func (b Batch) Stamp(base kafka.Offset, epoch kafka.LeaderEpoch) {
	binary.BigEndian.PutUint64(b.data[baseOffsetAt:], uint64(base))
	binary.BigEndian.PutUint32(b.data[leaderEpochAt:], uint32(epoch))
}

// SameAs reports whether two batches are the same one as their producer made it: all but
// what a broker sets (Stamp, StampLogAppendTime).
func (b Batch) SameAs(other Batch) bool {
	return (b.Attributes()^other.Attributes())&^timestampTypeBit == 0 &&
		bytes.Equal(b.data[lastOffsetDeltaAt:maxTimestampAt], other.data[lastOffsetDeltaAt:maxTimestampAt]) &&
		bytes.Equal(b.data[producerIDAt:], other.data[producerIDAt:])
}

// StampLogAppendTime makes ms, in place, the timestamp of every record, and
// computes the checksum anew.
func (b Batch) StampLogAppendTime(ms int64) {
	binary.BigEndian.PutUint16(b.data[attributesAt:], uint16(b.Attributes()|timestampTypeBit))
	b.setMaxTimestamp(ms)
}

// setMaxTimestamp sets the field in place and computes the checksum anew.
func (b Batch) setMaxTimestamp(ms int64) {
	binary.BigEndian.PutUint64(b.data[maxTimestampAt:], uint64(ms))
	binary.BigEndian.PutUint32(b.data[crcAt:], b.computeCRC())
}

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b.data[attributesAt:], castagnoli) }

// payload returns the records as they stand, compressed or not.
func (b Batch) payload() []byte { return b.data[HeaderSize:] }

func (b Batch) int32(at int) int32 { return int32(binary.BigEndian.Uint32(b.data[at:])) }

func (b Batch) int64(at int) int64 { return int64(binary.BigEndian.Uint64(b.data[at:])) }
