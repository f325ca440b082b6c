package record

import (
	"encoding/binary"
	"math"

	"github.com/strandline/strandline/internal/kafka"
)

// Builder builds batches one after the other and keeps its memory between them.
// It has one owner at a time.
//
// It builds from values of our own, not of a stranger: a batch that could not
// be valid is a broken invariant and panics.
type Builder struct {
	codec      Codec
	compressor *Compressor // nil without compression.

	buf    []byte // The header's room and the records so far, uncompressed.
	packed []byte // The batch, if it is compressed.

	baseOffset      kafka.Offset
	leaderEpoch     kafka.LeaderEpoch
	producerID      kafka.ProducerID
	producerEpoch   kafka.ProducerEpoch
	baseSequence    int32
	attributes      int16
	lastOffsetDelta int32 // Of the last record, or beyond it by KeepLastOffsetDelta.
	count           int32
	baseTimestamp   int64
	maxTimestamp    int64
}

// NewBuilder returns a Builder of batches of the codec. For levels see
// NewCompressor.
func NewBuilder(codec Codec, level int) *Builder {
	b := &Builder{codec: codec, buf: make([]byte, HeaderSize)}
	if codec != CodecNone {
		b.compressor = NewCompressor(codec, level)
	}
	b.Reset()
	return b
}

// Reset forgets the batch at hand, its settings included, and starts one
// without producer id at offset 0.
func (b *Builder) Reset() {
	b.buf = b.buf[:HeaderSize] // Build writes every byte of it.
	b.baseOffset, b.leaderEpoch = 0, kafka.NoLeaderEpoch
	b.producerID, b.producerEpoch, b.baseSequence = kafka.NoProducerID, -1, NoSequence
	b.attributes = int16(b.codec)
	b.lastOffsetDelta, b.count = -1, 0
	b.baseTimestamp, b.maxTimestamp = NoTimestamp, math.MinInt64
}

// SetBase sets the base offset and the leader epoch.
func (b *Builder) SetBase(offset kafka.Offset, epoch kafka.LeaderEpoch) {
	b.baseOffset, b.leaderEpoch = offset, epoch
}

// SetProducer sets the producer's id and epoch and the sequence of the first
// record.
func (b *Builder) SetProducer(id kafka.ProducerID, epoch kafka.ProducerEpoch, baseSequence int32) {
	b.producerID, b.producerEpoch, b.baseSequence = id, epoch, baseSequence
}

// SetTransactional makes the batch part of a transaction.
func (b *Builder) SetTransactional() { b.attributes |= transactionalBit }

// SetControl makes the batch a control batch.
func (b *Builder) SetControl() { b.attributes |= controlBit }

// Rewrite starts a batch that holds some of the records of old, as compaction
// does: it takes over everything but the codec and the records, the last offset
// included. They come with Keep.
func (b *Builder) Rewrite(old Batch) {
	b.Reset()
	b.SetBase(old.BaseOffset(), old.LeaderEpoch())
	b.SetProducer(old.ProducerID(), old.ProducerEpoch(), old.BaseSequence())
	b.attributes |= old.Attributes() &^ codecMask
	b.baseTimestamp = old.BaseTimestamp()
	b.lastOffsetDelta = old.LastOffsetDelta()
	if old.TimestampType() == LogAppendTime {
		b.maxTimestamp = old.MaxTimestamp()
	}
}

// SetDeleteHorizon sets when compaction may drop the batch's tombstones or
// marker (KIP-534). It comes after Rewrite and before the first Keep.
func (b *Builder) SetDeleteHorizon(ms int64) {
	if b.count > 0 {
		panic("record: the delete horizon comes before the records")
	}
	b.attributes |= deleteHorizonBit
	b.baseTimestamp = ms
}

// SetHole makes the batch one without records, which stands for offsets that have
// none any more: those from the base offset to lastOffsetDelta above it.
func (b *Builder) SetHole(lastOffsetDelta int32, timestamp int64) {
	if lastOffsetDelta < 0 || b.count > 0 {
		panic("record: a hole has offsets and no records")
	}
	b.lastOffsetDelta, b.baseTimestamp, b.maxTimestamp = lastOffsetDelta, timestamp, timestamp
}

// Append adds a record after the last one. A nil key or value is null. Nothing
// is kept of the arguments.
func (b *Builder) Append(timestamp int64, key, value []byte, headers []Header) {
	if b.count == 0 {
		b.baseTimestamp = timestamp
	}
	b.lastOffsetDelta++
	b.add(b.lastOffsetDelta, timestamp, key, value, headers)
}

// Keep adds a record of the batch that Rewrite was given, with its offset.
func (b *Builder) Keep(r Record) {
	b.add(r.OffsetDelta, r.Timestamp, r.Key, r.Value, r.Headers)
}

func (b *Builder) add(offsetDelta int32, timestamp int64, key, value []byte, headers []Header) {
	if b.attributes&timestampTypeBit == 0 || b.maxTimestamp == math.MinInt64 {
		b.maxTimestamp = max(b.maxTimestamp, timestamp)
	}
	timestampDelta := timestamp - b.baseTimestamp
	size := 1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)) +
		nullableSize(key) + nullableSize(value) + varintSize(int64(len(headers)))
	for _, h := range headers {
		size += varintSize(int64(len(h.Key))) + len(h.Key) + nullableSize(h.Value)
	}
	if len(b.buf)+size > math.MaxInt32 {
		panic("record: a batch must stay below 2 GiB")
	}
	b.count++
	b.buf = appendVarint(b.buf, int64(size))
	b.buf = append(b.buf, 0) // Attributes.
	b.buf = appendVarint(b.buf, timestampDelta)
	b.buf = appendVarint(b.buf, int64(offsetDelta))
	b.buf = appendNullable(b.buf, key)
	b.buf = appendNullable(b.buf, value)
	b.buf = appendVarint(b.buf, int64(len(headers)))
	for _, h := range headers {
		b.buf = appendVarint(b.buf, int64(len(h.Key)))
		b.buf = append(b.buf, h.Key...)
		b.buf = appendNullable(b.buf, h.Value)
	}
}

// Count returns the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// Size returns the size of the batch so far, before compression.
func (b *Builder) Size() int { return len(b.buf) }

// Build returns the batch and starts the next one, as Reset does. The bytes
// are the Builder's and good until the next Append, Keep or Reset. A batch
// without records is valid only of Rewrite, where it keeps a producer's last
// sequence, and of SetHole.
func (b *Builder) Build() []byte {
	if b.count == 0 && b.lastOffsetDelta < 0 {
		panic("record: a batch must have records")
	}
	out := b.buf
	if b.compressor != nil && b.count > 0 {
		b.packed = append(b.packed[:0], b.buf[:HeaderSize]...)
		out = b.compressor.Append(b.packed, b.buf[HeaderSize:])
		b.packed = out
	} else {
		b.attributes &^= codecMask
	}
	if b.count == 0 && b.maxTimestamp == math.MinInt64 {
		b.maxTimestamp = NoTimestamp
	}
	b.putHeader(out)
	b.Reset()
	return out
}

func (b *Builder) putHeader(out []byte) {
	be := binary.BigEndian
	be.PutUint64(out[baseOffsetAt:], uint64(b.baseOffset))
	be.PutUint32(out[batchLengthAt:], uint32(len(out)-FrameSize))
	be.PutUint32(out[leaderEpochAt:], uint32(b.leaderEpoch))
	out[magicAt] = Magic
	be.PutUint16(out[attributesAt:], uint16(b.attributes))
	be.PutUint32(out[lastOffsetDeltaAt:], uint32(b.lastOffsetDelta))
	be.PutUint64(out[baseTimestampAt:], uint64(b.baseTimestamp))
	be.PutUint64(out[maxTimestampAt:], uint64(b.maxTimestamp))
	be.PutUint64(out[producerIDAt:], uint64(b.producerID))
	be.PutUint16(out[producerEpochAt:], uint16(b.producerEpoch))
	be.PutUint32(out[baseSequenceAt:], uint32(b.baseSequence))
	be.PutUint32(out[recordCountAt:], uint32(b.count))
	be.PutUint32(out[crcAt:], Batch{data: out}.computeCRC())
}

func nullableSize(p []byte) int {
	if p == nil {
		return varintSize(-1)
	}
	return varintSize(int64(len(p))) + len(p)
}

func appendNullable(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int64(len(p))), p...)
}
