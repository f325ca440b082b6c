package record

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/strandline/strandline/internal/kafka"
)

// ProduceLimits is what a topic allows a producer's batch. Every limit is taken
// literally, zero too, but for the codecs.
type ProduceLimits struct {
	MaxBatchBytes        int      // max.message.bytes.
	MaxDecompressedBytes int64    // What a compressed batch may come to.
	NowMs                int64    // The broker's clock.
	TimestampBeforeMaxMs int64    // message.timestamp.before.max.ms.
	TimestampAfterMaxMs  int64    // message.timestamp.after.max.ms.
	AllowedCodecs        CodecSet // What the request's version may carry; zero for every codec.
	LogAppendTime        bool     // The producer's timestamps do not matter.
	KeyRequired          bool     // The topic is compacted.
}

// ValidateProduced checks everything about a batch that a producer sent: the
// size, the checksum, the header, and every record, which it does not
// materialise. A compressed batch is decompressed piece by piece and stays as it
// is. The error is an *InvalidError.
//
// One thing it repairs, in place, as Kafka does for old clients: a max timestamp
// that is not that of the records.
func ValidateProduced(b Batch, limits ProduceLimits) error {
	if b.Size() > limits.MaxBatchBytes {
		return invalid(ReasonTooLarge,
			"the batch has %d bytes, max.message.bytes of the topic is %d: send smaller batches or raise it",
			b.Size(), limits.MaxBatchBytes)
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if err := validateHeader(b, limits.AllowedCodecs); err != nil {
		return err
	}
	w := newWalk(b, &limits)
	if b.Codec() == CodecNone {
		if err := w.overBytes(b.payload()); err != nil {
			return err
		}
	} else if err := w.decompressed(b, limits.MaxDecompressedBytes); err != nil {
		return err
	}
	if !limits.LogAppendTime && w.maxTimestamp() != b.MaxTimestamp() {
		b.setMaxTimestamp(w.maxTimestamp())
	}
	return nil
}

// validateHeader checks the fields of the header against each other.
func validateHeader(b Batch, codecs CodecSet) error {
	switch attributes := b.Attributes(); {
	case attributes&^(knownAttributeBit&^deleteHorizonBit) != 0:
		return invalid(ReasonInvalidRecord, "attributes %#04x have bits that no producer may set",
			uint16(attributes))
	case b.IsControl():
		return invalid(ReasonInvalidRecord, "producers may not write control batches")
	case b.TimestampType() == LogAppendTime:
		return invalid(ReasonInvalidTimestamp, "producers may not set the timestamp type to "+
			"LogAppendTime: it is the topic's message.timestamp.type")
	case b.Codec() > CodecZstd:
		return invalid(ReasonUnsupportedCodec, "compression type %d is unknown", b.Codec())
	case !codecs.Has(b.Codec()):
		return invalid(ReasonUnsupportedCodec, "%s needs a newer version of the Produce request: "+
			"upgrade the client", b.Codec())
	case b.BaseOffset() != 0:
		return invalid(ReasonInvalidRecord, "base offset is %d: a producer's batch must start at 0",
			b.BaseOffset())
	case b.RecordCount() <= 0:
		return invalid(ReasonInvalidRecord, "record count is %d: a batch must have records",
			b.RecordCount())
	case int64(b.LastOffsetDelta())+1 != int64(b.RecordCount()):
		return invalid(ReasonInvalidRecord, "last offset delta is %d in a batch of %d records",
			b.LastOffsetDelta(), b.RecordCount())
	}
	return validateProducer(b)
}

func validateProducer(b Batch) error {
	id := b.ProducerID()
	switch {
	case id == kafka.NoProducerID:
		if b.IsTransactional() {
			return invalid(ReasonInvalidRecord, "a transactional batch must have a producer id")
		}
	case id < 0:
		return invalid(ReasonInvalidRecord, "producer id %d is negative", id)
	case b.ProducerEpoch() < 0:
		return invalid(ReasonInvalidRecord, "producer epoch %d of producer id %d is negative",
			b.ProducerEpoch(), id)
	case b.BaseSequence() < 0:
		return invalid(ReasonInvalidRecord, "base sequence %d of producer id %d is negative",
			b.BaseSequence(), id)
	}
	return nil
}

// walk is the state of a walk over the records of a producer's batch.
type walk struct {
	index    int64 // Of the record at hand.
	count    int64 // Records that the batch declares.
	base     int64 // Timestamp.
	minDelta int64 // Deltas outside minDelta..maxDelta need a closer look.
	maxDelta int64
	topDelta int64 // The greatest delta so far.
	minKey   int64 // 0 if a key is required, else -1.
	limits   *ProduceLimits
	at       fields
}

func newWalk(b Batch, limits *ProduceLimits) walk {
	w := walk{
		count:    int64(b.RecordCount()),
		base:     b.BaseTimestamp(),
		topDelta: math.MinInt64,
		minKey:   -1,
		limits:   limits,
	}
	if limits.KeyRequired {
		w.minKey = 0
	}
	// The window of timestamps, as deltas. Whatever does not fit into an int64
	// is cut off at its ends.
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if !limits.LogAppendTime {
		least = subtract(limits.NowMs, limits.TimestampBeforeMaxMs)
		most = subtract(limits.NowMs, -limits.TimestampAfterMaxMs)
	}
	w.minDelta, w.maxDelta = subtract(least, w.base), subtract(most, w.base)
	return w
}

// subtract returns a-b, or the int64 next to it.
func subtract(a, b int64) int64 {
	d := a - b
	if (a < b) != (d < 0) {
		if a < b {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return d
}

func (w *walk) maxTimestamp() int64 { return w.base + w.topDelta }

// overBytes walks records that lie in memory as a whole.
func (w *walk) overBytes(p []byte) error {
	i := w.skim(p, 0)
	for w.index < w.count {
		next, err := w.step(p, i)
		if err != nil {
			return err
		}
		i = w.skim(p, next)
	}
	if i != len(p) {
		return invalid(ReasonInvalidRecord, "%d bytes follow the last of %d records", len(p)-i, w.count)
	}
	return nil
}

// step checks the record at i, of any shape, and returns the position after it.
func (w *walk) step(p []byte, i int) (int, error) {
	length, next := varint32(p, i)
	if next < 0 {
		return 0, w.refuse(badError(next))
	}
	if length < minRecord || length > int64(len(p)-next) {
		return 0, w.refuse(errRecordSize)
	}
	end := next + int(length)
	if bad := w.at.parse(p[next:end]); bad < 0 {
		return 0, w.refuse(badError(bad))
	}
	return end, w.pass()
}

// decompressed walks records that come out of a codec.
func (w *walk) decompressed(b Batch, maxBytes int64) error {
	d := takeDecompressor()
	defer d.giveBack()
	s, err := d.open(b.Codec(), b.payload(), maxBytes)
	if err != nil {
		return w.refusePayload(err)
	}
	return w.overStream(s)
}

// overStream walks records that come in pieces.
func (w *walk) overStream(s *stream) error {
	for {
		s.chunk = s.chunk[w.skim(s.chunk, 0):]
		if w.index == w.count {
			break
		}
		if err := w.stepStream(s); err != nil {
			return err
		}
	}
	if len(s.chunk) == 0 {
		err := s.refill()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return w.refusePayload(err)
		}
	}
	return invalid(ReasonInvalidRecord, "bytes follow the last of %d records", w.count)
}

// stepStream checks the next record, of any shape.
func (w *walk) stepStream(s *stream) error {
	length, _, err := s.varint(maxVarint32)
	if err != nil {
		return w.refusePayload(err)
	}
	if length < minRecord {
		return w.refuse(errRecordSize)
	}
	if length <= int64(len(s.chunk)) {
		body := s.chunk[:length]
		s.chunk = s.chunk[length:]
		if bad := w.at.parse(body); bad < 0 {
			return w.refuse(badError(bad))
		}
	} else {
		r := recordReader{s: s, left: length}
		if err := r.read(&w.at); err != nil {
			return w.refusePayload(err)
		}
	}
	return w.pass()
}

// pass checks the record at hand against the batch and the limits, notes its
// timestamp, and goes on to the next.
func (w *walk) pass() error {
	delta := w.at.timestampDelta
	if w.at.offsetDelta != w.index || w.at.keyLen < w.minKey || delta < w.minDelta ||
		delta > w.maxDelta {
		if err := w.inspect(); err != nil {
			return err
		}
	}
	w.topDelta = max(w.topDelta, delta)
	w.index++
	return nil
}

// inspect says what is wrong with a record that pass looked twice at. It may be
// right after all: one without a timestamp.
func (w *walk) inspect() error {
	if w.at.offsetDelta != w.index {
		return w.refuse(fmt.Errorf("its offset delta is %d: deltas must count from 0", w.at.offsetDelta))
	}
	if w.at.keyLen < w.minKey {
		return w.refuse(errors.New("it has no key: a topic with cleanup.policy=compact needs one"))
	}
	delta, timestamp := w.at.timestampDelta, w.base+w.at.timestampDelta
	if delta > 0 && timestamp < w.base || delta < 0 && timestamp > w.base {
		return w.refuseTimestamp("its timestamp, %d after %d, is beyond 64 bits", delta, w.base)
	}
	if w.limits.LogAppendTime || timestamp == NoTimestamp {
		return nil
	}
	return w.refuseTimestamp("its timestamp %d is out of range: it may be %d ms behind and %d ms "+
		"ahead of the broker's clock, %d "+
		"(message.timestamp.before.max.ms and message.timestamp.after.max.ms)",
		timestamp, w.limits.TimestampBeforeMaxMs, w.limits.TimestampAfterMaxMs, w.limits.NowMs)
}

func (w *walk) refuse(err error) error { return invalidRecord(int32(w.index), err) }

func (w *walk) refuseTimestamp(format string, args ...any) error {
	e := invalid(ReasonInvalidTimestamp, format, args...)
	e.RecordIndex = int32(w.index)
	return e
}

// refusePayload is refuse for errors that may come from the codec.
func (w *walk) refusePayload(err error) error {
	return invalidPayload(int32(w.index), err, w.limits.MaxDecompressedBytes)
}
