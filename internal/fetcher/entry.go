package fetcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// entry is one partition that a loop follows, under one leader epoch.
type entry struct {
	p     *partition.Partition
	epoch kafka.LeaderEpoch
	at    partition.Position
	// told says that the leader's session has it, with what is in at.
	told bool
	// moved says that at is not what the leader was told.
	moved bool
	// gone says that it is followed no more, or under another epoch.
	gone bool
	// readers says that somebody here waits for the high watermark.
	readers bool
	// answer is what the leader asks, and is not answered yet: whether this epoch is followed.
	answer kafka.Round
	// notBefore, if set, is when it may be asked for again after a failure.
	notBefore time.Time
	backoff   time.Duration
	failing   bool // Which was logged.
}

func (e *entry) key() key { return key{e.p.ID().ID, e.p.ID().Partition} }

// isReady reports whether the leader may be asked for it.
func (e *entry) isReady() bool { return !e.gone && e.notBefore.IsZero() }

// putOff lets a partition back off: a little at first, then longer.
func (l *loop) putOff(e *entry) {
	e.backoff = max(min(2*e.backoff, l.f.o.Settings().Backoff), firstBackoff)
	e.notBefore = l.f.o.Now().Add(e.backoff)
	e.p.InContact(e.epoch, nil)
	l.off[e] = true
	l.session.note(e)
}

// fail puts a partition off and logs why, once. While the broker stops, logs are closed
// under whoever follows, which is no news.
func (l *loop) fail(e *entry, what string, err error) {
	l.putOff(e)
	select {
	case <-l.over:
		return
	default:
	}
	if e.failing {
		return
	}
	e.failing = true
	l.f.o.Logger.Error("following a leader: "+what+"; trying again", "topic", e.p.Topic(),
		"partition", e.p.ID().Partition, "broker", l.id.leader, "leader_epoch", e.epoch, "offset", e.at.Offset,
		"error", err)
}

// worked notes that a partition that had failed goes on.
func (l *loop) worked(e *entry) {
	if e.failing {
		l.f.o.Logger.Info("following a leader again", "topic", e.p.Topic(), "partition", e.p.ID().Partition,
			"broker", l.id.leader, "leader_epoch", e.epoch, "offset", e.at.Offset)
	}
	e.failing, e.backoff = false, 0
}

// takeRound notes what the leader asks. The next fetch of the partition answers, and looks
// its position up before: who does not follow the epoch any more says nothing. Neither
// does who has not joined since it started, for what it knows may be older than what it
// knew before.
func (l *loop) takeRound(e *entry, rp *kmsg.FetchResponseTopicPartition) {
	if rp.UnknownTags.Len() == 0 || l.f.o.Joined != nil && !l.f.o.Joined() {
		return
	}
	rp.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag != kafka.RoundTag {
			return
		}
		if r, ok := kafka.ParseRound(value); ok && r.LeaderEpoch == e.epoch && r.Number > e.answer.Number {
			e.answer = r
			l.session.note(e)
		}
	})
}

// takePartition takes what a leader answers for one partition. It reports whether
// the log has grown.
func (l *loop) takePartition(e *entry, rp *kmsg.FetchResponseTopicPartition) bool {
	switch code := kafka.Code(rp.ErrorCode); code {
	case kafka.ErrNone:
		if d := rp.DivergingEpoch; d.EndOffset >= 0 {
			if e.moved {
				return false // It was about where the log ended before.
			}
			l.truncate(e, partition.EpochEnd{
				LeaderEpoch: kafka.LeaderEpoch(d.Epoch), EndOffset: kafka.Offset(d.EndOffset),
			})
			return false
		}
		return l.appendTo(e, rp)
	case kafka.ErrOffsetOutOfRange:
		l.outOfRange(e, rp)
	case kafka.ErrNotLeaderOrFollower, kafka.ErrFencedLeaderEpoch, kafka.ErrUnknownLeaderEpoch,
		kafka.ErrUnknownTopicOrPartition, kafka.ErrUnknownTopicID, kafka.ErrInconsistentTopicID:
		l.putOff(e) // One of the two has older metadata, for a moment.
	default:
		l.fail(e, "it can't serve the partition", &kafka.Error{Code: code, Message: code.String()})
	}
	return false
}

// appendTo appends the records of an answer.
func (l *loop) appendTo(e *entry, rp *kmsg.FetchResponseTopicPartition) bool {
	batches, err := batchesOf(rp.RecordBatches)
	if err != nil {
		l.fail(e, "its answer is damaged", err)
		return false
	}
	before := e.at
	end, err := e.p.AppendAsFollower(e.epoch, partition.Fetched{
		Batches: batches, HighWatermark: kafka.Offset(rp.HighWatermark), LogStartOffset: kafka.Offset(rp.LogStartOffset),
	})
	switch {
	case errors.Is(err, partition.ErrNotFollower) || errors.Is(err, partition.ErrDeleted):
		l.putOff(e) // Follow is about to say so.
		return false
	case err != nil:
		l.fail(e, "its records are not taken", err)
		return false
	}
	l.worked(e)
	e.p.NoteCopied(len(rp.RecordBatches), l.f.o.Now())
	e.p.InContact(e.epoch, &l.contact)
	if highWatermark := e.p.HighWatermark(); highWatermark != before.HighWatermark && e.readers {
		l.session.note(e)
	}
	if e.p.Log().LogStartOffset() != before.LogStartOffset {
		l.session.note(e) // Somebody may wait for it: DeleteRecords.
	}
	if e.at.Offset = end; end == before.Offset {
		return false
	}
	e.moved = true
	return true
}

// batchesOf takes an answer's records apart. The last batch may be a part of one, as
// leaders other than these may send it.
func batchesOf(data []byte) ([]record.Batch, error) {
	var batches []record.Batch
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err != nil {
			return nil, err
		}
		batches, data = append(batches, b), rest
	}
	return batches, nil
}

// truncate cuts the log where it and the leader's part.
func (l *loop) truncate(e *entry, diverging partition.EpochEnd) {
	cut, err := e.p.TruncateTo(e.epoch, diverging)
	e.moved = true
	l.session.note(e)
	if err == nil && cut.To >= cut.From {
		err = fmt.Errorf("the leader's epoch %d ends at %d, which leaves the log as it is", diverging.LeaderEpoch,
			diverging.EndOffset)
	}
	l.cutDone(e, cut, "the log is cut where it parts from the leader's", err)
}

// outOfRange answers a leader that has nothing where this log ends: it has deleted
// that, or never had it and this log is empty.
func (l *loop) outOfRange(e *entry, rp *kmsg.FetchResponseTopicPartition) {
	if e.moved {
		return // It was about where the log ended before.
	}
	start := kafka.Offset(rp.LogStartOffset)
	log := e.p.Log()
	l.session.note(e)
	if start < 0 || start <= log.LogEndOffset() && log.LogStartOffset() < log.LogEndOffset() {
		l.fail(e, "it has no such offset", &commitlog.OffsetOutOfRangeError{
			Offset: e.at.Offset, Start: start, End: kafka.Offset(rp.HighWatermark),
		})
		return
	}
	cut, err := e.p.RestartAt(e.epoch, start)
	e.moved = true
	l.cutDone(e, cut, "the log begins anew where the leader's begins", err)
}

// cutDone logs what a cut took.
func (l *loop) cutDone(e *entry, cut partition.Cut, what string, err error) {
	if errors.Is(err, partition.ErrNotFollower) || errors.Is(err, partition.ErrDeleted) {
		l.putOff(e) // Follow is about to say so.
		return
	}
	if err != nil {
		l.fail(e, "its log and this one part", err)
		return
	}
	log := l.f.o.Logger.With("topic", e.p.Topic(), "partition", e.p.ID().Partition, "broker", l.id.leader,
		"leader_epoch", e.epoch, "from", cut.From, "to", cut.To)
	if cut.Lost() {
		log.Error(what+"; records that were acknowledged are lost: the leader was elected without having them",
			"lost_from", cut.To, "lost_to", cut.LostFrom)
		return
	}
	log.Info(what)
}
