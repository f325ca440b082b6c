package partition

import (
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Transactions: what their coordinators and producers need of a partition. That no
// transaction is left open for ever rests on these (KIP-890):
//
//   - A transactional batch is appended only if its producer's transaction is open
//     here, or if its coordinator said so after BeginVerification and no marker of
//     the producer came in between. Both are looked at under the lock of the append.
//   - A marker is appended only if it is not older than what is known of the producer
//     and of its coordinator, and is not of a transaction before the one that is open. A
//     leader knows that of markers that were sent to it under its leader epoch.
//   - Followers have the same by appending the same batches, so a new leader goes on
//     where the old one ended. What was verified under one leader epoch does not count
//     under another.

// TxnCheck says how it is known that a producer's transaction is open here. The zero
// value is of nobody who asked: then it must be open here already.
type TxnCheck struct {
	leaderEpoch  kafka.LeaderEpoch
	verification commitlog.Verification
}

// WithGaps returns the check for a producer that leaves sequences out, because it numbers
// what it sends and not its records: a batch that comes again is told all the same.
func (c TxnCheck) WithGaps() TxnCheck {
	c.verification.Gaps = true
	return c
}

// BeginVerification is called before a producer's transactional batch is appended. If
// needed is false it may be, with a zero TxnCheck. Else the transaction's coordinator
// is to be asked whether the partition is part of it; if so the batch is appended with
// check (AppendTxn).
func (p *Partition) BeginVerification(
	id kafka.ProducerID, epoch kafka.ProducerEpoch,
) (check TxnCheck, needed bool, err error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(kafka.NoLeaderEpoch); err != nil {
		return TxnCheck{}, false, err
	}
	end, needed, err := p.log.BeginVerification(id, epoch)
	if err != nil || !needed {
		return TxnCheck{}, false, err
	}
	return TxnCheck{
		leaderEpoch:  p.leaderEpoch,
		verification: commitlog.Verification{Verified: true, LogEnd: end},
	}, true, nil
}

// Overtaken reports whether a marker of the producer came since its check was begun: what
// the coordinator said then may be about the transaction that it has ended.
func (p *Partition) Overtaken(check TxnCheck, id kafka.ProducerID) bool {
	return p.log.MarkedSince(id, check.verification.LogEnd)
}

// AppendTxn is AppendUnder for batches of transactions. A check of an earlier leader
// epoch fails with *FencedEpochError; whether the transaction is open is then to be
// asked again.
func (p *Partition) AppendTxn(
	believed kafka.LeaderEpoch, bs []record.Batch, acks Acks, check TxnCheck, now time.Time,
) (commitlog.AppendInfo, error) {
	if check.verification.Verified {
		if believed != kafka.NoLeaderEpoch && believed != check.leaderEpoch {
			return commitlog.AppendInfo{}, &FencedEpochError{check.leaderEpoch, believed}
		}
		believed = check.leaderEpoch
	}
	return p.append(believed, bs, acks, check.verification, now)
}

// Marked is what AppendMarkers did.
type Marked struct {
	// LeaderEpoch and End are what to wait for: the markers are as safe as acks=all
	// promises when the high watermark reaches End under that leader epoch (Await,
	// Acknowledged).
	LeaderEpoch kafka.LeaderEpoch
	End         kafka.Offset
	// Refused, if not nil, says of each marker why it was refused, nil if it was not.
	Refused []error
}

// AppendMarkers ends transactions, unless the leader epoch is another than who sent the
// markers believed. A marker of an older coordinator is refused with
// *producerstate.CoordinatorFencedError, one of an older producer epoch or of an earlier
// transaction with *producerstate.InvalidEpochError, and the others are appended. After an
// error some may be in the log; to ask again does no harm.
func (p *Partition) AppendMarkers(
	believed kafka.LeaderEpoch, ms []commitlog.Marker, now time.Time,
) (Marked, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.appendableLocked(believed, AcksAll); err != nil {
		return Marked{}, err
	}
	info, refused, err := p.log.AppendMarkers(ms, p.leaderEpoch, now)
	if info.BaseOffset != kafka.NoOffset {
		p.appendedLocked()
	}
	if err != nil {
		return Marked{}, err
	}
	return Marked{LeaderEpoch: p.leaderEpoch, End: info.LastOffset + 1, Refused: refused}, nil
}

// OngoingTxn returns where a producer's open transaction began in this partition, and
// the epoch it is of; false if it has none here.
func (p *Partition) OngoingTxn(id kafka.ProducerID) (kafka.Offset, kafka.ProducerEpoch, bool, error) {
	return p.log.OngoingTxn(id)
}

// LastSequence returns the last sequence that a producer has sent under an epoch; false if
// it has sent nothing. Only the leader knows.
func (p *Partition) LastSequence(id kafka.ProducerID, epoch kafka.ProducerEpoch) (int32, bool, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(kafka.NoLeaderEpoch); err != nil {
		return 0, false, err
	}
	return p.log.LastSequence(id, epoch)
}

// AbortedTxns returns the aborted transactions with records in [from, upTo), where
// upTo is at most a last stable offset.
func (p *Partition) AbortedTxns(from, upTo kafka.Offset) ([]commitlog.AbortedTxn, error) {
	return p.log.AbortedTxns(from, upTo)
}

// LastStableOffset returns the first offset that a read_committed consumer may
// not read yet: the high watermark, or where the first transaction began that has
// not ended, with its end replicated.
func (p *Partition) LastStableOffset() kafka.Offset {
	return p.log.StableBelow(p.HighWatermark()) // Which is loaded first; see commitlog.
}

// WaitStable is Wait for the last stable offset.
func (p *Partition) WaitStable(w *Waiter, waker Waker, target kafka.Offset) bool {
	return p.stable.add(w, waker, target, p.LastStableOffset)
}

// ReadableEnd returns the first offset that a reader may not read yet.
func (p *Partition) ReadableEnd(i Isolation) kafka.Offset {
	if i == ReadCommitted {
		return p.LastStableOffset()
	}
	return p.HighWatermark()
}

// WaitReadable is Wait for ReadableEnd.
func (p *Partition) WaitReadable(i Isolation, w *Waiter, waker Waker, target kafka.Offset) bool {
	if i == ReadCommitted {
		return p.WaitStable(w, waker, target)
	}
	return p.Wait(w, waker, target)
}

// risen tells the log and whoever waits that the high watermark has moved. It is
// called without a lock but role, after the new one was published.
func (p *Partition) risen() {
	highWatermark := p.HighWatermark()
	p.log.Replicated(highWatermark)
	p.waiters.advance(highWatermark)
	p.stable.advance(p.LastStableOffset())
}
