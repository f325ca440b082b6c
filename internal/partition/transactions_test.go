package partition_test

import (
	"errors"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// txnBatch is a batch of producer 7's transaction.
func txnBatch(t *testing.T, epoch kafka.ProducerEpoch, sequence int32, values ...string) []record.Batch {
	t.Helper()
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(7, epoch, sequence)
	b.SetTransactional()
	for _, v := range values {
		b.Append(now.UnixMilli(), nil, []byte(v), nil)
	}
	return batches(t, append([]byte(nil), b.Build()...))
}

// verify begins a verification, which must be needed.
func (c *cluster) verify(id kafka.BrokerID, epoch kafka.ProducerEpoch) partition.TxnCheck {
	c.t.Helper()
	check, needed, err := c.at(id).BeginVerification(7, epoch)
	if err != nil || !needed {
		c.t.Fatalf("verification at %d: needed %v, %v", id, needed, err)
	}
	return check
}

// inTxn appends to producer 7's transaction and waits until that is synced.
func (c *cluster) inTxn(id kafka.BrokerID, check partition.TxnCheck, bs []record.Batch) {
	c.t.Helper()
	if _, err := c.at(id).AppendTxn(kafka.NoLeaderEpoch, bs, partition.AcksAll, check, now); err != nil {
		c.t.Fatalf("append at %d: %v", id, err)
	}
	c.synced(id)
}

// mark appends a marker and waits until it is synced.
func (c *cluster) mark(id kafka.BrokerID, m commitlog.Marker) partition.Marked {
	c.t.Helper()
	marked, err := c.at(id).AppendMarkers(kafka.NoLeaderEpoch, []commitlog.Marker{m}, now)
	if err != nil || marked.Refused != nil {
		c.t.Fatalf("marker at %d: %v, %v", id, marked.Refused, err)
	}
	c.synced(id)
	return marked
}

// stable checks a broker's last stable offset.
func (c *cluster) stable(id kafka.BrokerID, want kafka.Offset) {
	c.t.Helper()
	if got := c.at(id).LastStableOffset(); got != want {
		c.t.Errorf("last stable offset of %d is %d, want %d; high watermark %d", id, got, want, c.at(id).HighWatermark())
	}
}

func abort(epoch kafka.ProducerEpoch) commitlog.Marker {
	return commitlog.Marker{ProducerID: 7, ProducerEpoch: epoch, CoordinatorEpoch: 3}
}

// TestStableFollowsReplication: an open transaction holds the last stable offset, and
// so does one whose marker is not replicated: the next leader may not have it.
func TestStableFollowsReplication(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.produce(1, "a")
	c.inTxn(1, c.verify(1, 0), txnBatch(t, 0, 0, "b", "c"))
	c.produce(1, "d")
	both := func() {
		for range 2 { // The second time tells of the acknowledgement.
			c.fetch(2)
			c.fetch(3)
		}
	}
	both()
	for _, id := range []kafka.BrokerID{1, 2, 3} {
		c.watermark(id, 4)
		c.stable(id, 1)
	}
	marked := c.mark(1, abort(0))
	if marked.End != 5 {
		t.Fatalf("marked up to %d", marked.End)
	}
	c.stable(1, 1)
	c.fetch(2)
	c.stable(1, 1)
	if err := c.at(1).Acknowledged(marked.LeaderEpoch, marked.End); !errors.Is(err, partition.ErrNotYet) {
		t.Errorf("marker: %v", err)
	}
	both()
	for _, id := range []kafka.BrokerID{1, 2, 3} {
		c.stable(id, 5)
		txns, err := c.at(id).AbortedTxns(0, 5)
		if err != nil || len(txns) != 1 || txns[0] != (commitlog.AbortedTxn{
			ProducerID: 7, FirstOffset: 1, LastOffset: 4, LastStableOffset: 5,
		}) {
			t.Errorf("aborted at %d: %+v, %v", id, txns, err)
		}
	}
	c.same(1, 2, 3)
}

// TestMarkerAtTheHighWatermark: a high watermark that has reached a marker has not passed it.
func TestMarkerAtTheHighWatermark(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.inTxn(1, c.verify(1, 0), txnBatch(t, 0, 0, "b", "c"))
	c.fetch(2)
	c.produce(1, "d")
	fetchOnce := func() { // Acknowledges what was fetched before.
		t.Helper()
		p := c.at(2)
		r, err := c.ask(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := r.Chunk.AppendTo(nil)
		r.Chunk.Release()
		if err != nil {
			t.Fatal(err)
		}
		f, _ := p.Following()
		if _, err := p.AppendAsFollower(f.LeaderEpoch, partition.Fetched{
			Batches: batches(t, data), HighWatermark: r.HighWatermark, LogStartOffset: r.LogStartOffset,
		}); err != nil {
			t.Fatal(err)
		}
		c.synced(2)
	}
	fetchOnce()
	c.watermark(1, 3)
	c.mark(1, abort(0))
	fetchOnce()
	c.watermark(1, 4)
	c.stable(1, 1)
	fetchOnce()
	c.watermark(1, 5)
	c.stable(1, 5)
}

// TestTransactionAcrossLeaders: the next leader knows what is open and goes on with
// it; what was verified under the old one does not count.
func TestTransactionAcrossLeaders(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	old := c.verify(1, 0)
	c.inTxn(1, old, txnBatch(t, 0, 0, "a"))
	c.fetch(2)
	c.fetch(3)
	c.inTxn(1, partition.TxnCheck{}, txnBatch(t, 0, 1, "lost"))
	c.elect(2, 2, 3)
	if first, epoch, open, err := c.at(2).OngoingTxn(7); err != nil || !open || first != 0 || epoch != 0 {
		t.Fatalf("ongoing: %d, %d, %v, %v", first, epoch, open, err)
	}
	var fenced *partition.FencedEpochError
	_, err := c.at(2).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, 1, "b"), partition.AcksAll, old, now)
	if !errors.As(err, &fenced) {
		t.Errorf("append verified under the old leader: %v", err)
	}
	c.inTxn(2, partition.TxnCheck{}, txnBatch(t, 0, 1, "b")) // It is open: nobody needs to be asked.
	c.mark(2, abort(1))
	c.fetch(3)
	c.fetch(1)
	c.fetch(3)
	c.stable(2, 3)
	c.elect(3, 2, 3)
	c.fetch(1)
	c.fetch(2)
	c.fetch(1)
	c.fetch(2)
	for _, id := range []kafka.BrokerID{1, 2, 3} {
		c.stable(id, 3)
		if _, _, open, err := c.at(id).OngoingTxn(7); open || err != nil {
			t.Errorf("still open at %d: %v", id, err)
		}
	}
	c.same(1, 2, 3)
}

// TestRestartKeepsTransactions: a broker that comes back after a power loss knows what
// is open before it has read or written anything.
func TestRestartKeepsTransactions(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.inTxn(1, c.verify(1, 0), txnBatch(t, 0, 0, "b"))
	c.produce(1, "c")
	c.fetch(2)
	c.crash(1)
	c.elect(1, 1, 2)
	c.fetch(2)
	c.watermark(1, 3)
	c.stable(1, 1)
	c.mark(1, commitlog.Marker{ProducerID: 7, Commit: true})
	c.fetch(2)
	c.stable(1, 4)
	if txns, err := c.at(1).AbortedTxns(0, 4); err != nil || len(txns) > 0 {
		t.Errorf("aborted: %v, %v", txns, err)
	}
}

// TestProduceAfterMarker is scenario 32: a batch that was verified, and held up until
// its transaction had been aborted, begins no new one that nobody would end.
func TestProduceAfterMarker(t *testing.T) {
	c := newCluster(t, 1, 2)
	for _, next := range []kafka.ProducerEpoch{0, 1} { // As in both versions of transactions.
		check := c.verify(1, 0)
		m := abort(next)
		m.Bumped = next > 0
		c.mark(1, m)
		_, err := c.at(1).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, 0, "late"), partition.AcksAll, check, now)
		var state *producerstate.TransactionStateError
		var epoch *producerstate.InvalidEpochError
		if !errors.As(err, &state) && !errors.As(err, &epoch) {
			t.Errorf("append after the marker of epoch %d: %v", next, err)
		}
	}
	c.fetch(2)
	c.stable(1, 2)
	if _, err := c.at(1).Append(txnBatch(t, 1, 0, "unverified"), partition.AcksAll, now); err == nil {
		t.Error("a transaction began without its coordinator")
	}
}

// TestLateBatchJoinsNoOther: nor does it become part of the transaction after, which has the
// same epoch where producers add their partitions themselves. Batches of a group's offsets
// have no sequences that would tell.
func TestLateBatchJoinsNoOther(t *testing.T) {
	for _, sequence := range []int32{record.NoSequence, 1} {
		c := newCluster(t, 1, 2)
		late := c.verify(1, 0)
		c.mark(1, abort(0))
		check := c.verify(1, 0)
		if p := c.at(1); !p.Overtaken(late, 7) || p.Overtaken(check, 7) || p.Overtaken(late, 8) {
			t.Error("a marker overtakes what was verified before it, of its producer")
		}
		c.inTxn(1, check, txnBatch(t, 0, min(sequence, 0), "in time"))
		_, err := c.at(1).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, sequence, "late"), partition.AcksAll, late, now)
		var state *producerstate.TransactionStateError
		if !errors.As(err, &state) {
			t.Errorf("append of a batch of the transaction before: %v", err)
		}
		c.inTxn(1, partition.TxnCheck{}, txnBatch(t, 0, sequence, "goes on"))
	}
}

// TestMarkersAreFenced: a marker of an older coordinator, or of an older epoch of the
// producer, is refused and the others are appended; where epochs rise with each
// transaction a late one of the transaction before ends nothing (KAFKA-19446), and one
// that comes again does no harm (KAFKA-19999).
func TestMarkersAreFenced(t *testing.T) {
	c := newCluster(t, 1, 2)
	p := c.at(1)
	c.mark(1, commitlog.Marker{ProducerID: 7, ProducerEpoch: 4, CoordinatorEpoch: 3, Bumped: true})
	c.inTxn(1, c.verify(1, 4), txnBatch(t, 4, 0, "a"))
	marked, err := p.AppendMarkers(kafka.NoLeaderEpoch, []commitlog.Marker{
		{ProducerID: 7, ProducerEpoch: 3, CoordinatorEpoch: 3},
		{ProducerID: 8, ProducerEpoch: 0, CoordinatorEpoch: 0, Commit: true},
		{ProducerID: 7, ProducerEpoch: 5, CoordinatorEpoch: 2},
		{ProducerID: 7, ProducerEpoch: 4, CoordinatorEpoch: 3, Bumped: true},
	}, now)
	if err != nil || len(marked.Refused) != 4 || marked.End != 3 {
		t.Fatalf("markers: %+v, %v", marked, err)
	}
	var epoch *producerstate.InvalidEpochError
	var coordinator *producerstate.CoordinatorFencedError
	if !errors.As(marked.Refused[0], &epoch) || marked.Refused[1] != nil || !errors.As(marked.Refused[2], &coordinator) ||
		!errors.As(marked.Refused[3], &epoch) {
		t.Errorf("refused: %q", marked.Refused)
	}
	if _, _, open, _ := p.OngoingTxn(7); !open {
		t.Error("a late marker ended the transaction")
	}
	for range 2 {
		c.mark(1, commitlog.Marker{ProducerID: 7, ProducerEpoch: 5, CoordinatorEpoch: 3, Bumped: true, Commit: true})
	}
	if _, _, open, _ := p.OngoingTxn(7); open {
		t.Error("the marker did not end the transaction")
	}
	if _, err := p.Append(txnBatch(t, 4, 1, "fenced"), partition.AcksAll, now); !errors.As(err, &epoch) {
		t.Errorf("append of the epoch before: %v", err)
	}
}

// TestReadCommitted: such readers see nothing of an open transaction, are woken when it
// has ended and not before, and are told what to leave out.
func TestReadCommitted(t *testing.T) {
	c := newCluster(t, 1, 2)
	p := c.at(1)
	c.produce(1, "a")
	c.inTxn(1, c.verify(1, 0), txnBatch(t, 0, 0, "b"))
	c.fetch(2)
	read := func(from kafka.Offset) partition.ReadResult {
		t.Helper()
		r, err := p.Read(partition.ReadOptions{
			From: from, MaxBytes: 1 << 20, Isolation: partition.ReadCommitted, CurrentEpoch: kafka.NoLeaderEpoch,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Chunk.Release()
		return r
	}
	if r := read(0); r.Chunk.NextOffset() != 1 || r.LastStableOffset != 1 || r.HighWatermark != 2 || r.Aborted != nil {
		t.Errorf("read beside an open transaction: %+v", r)
	}
	woken := make(wakes, 10)
	var w partition.Waiter
	if !p.WaitStable(&w, woken, 2) {
		t.Fatal("nothing to wait for")
	}
	c.produce(1, "c")
	c.fetch(2)
	if w.Fired() {
		t.Error("woken by records behind an open transaction")
	}
	c.mark(1, abort(0))
	c.fetch(2)
	if !w.Fired() {
		t.Error("not woken when the transaction had ended")
	}
	if r := read(1); r.Chunk.NextOffset() != 4 || len(r.Aborted) != 1 {
		t.Errorf("read after it ended: %+v", r)
	}
	if r := read(2); len(r.Aborted) != 1 { // Its marker is still to come.
		t.Errorf("read behind its records: %+v", r)
	}
	if r := read(4); r.Chunk.Size() != 0 || r.Aborted != nil {
		t.Errorf("read at the end: %+v", r)
	}
}

// TestGapsAcrossLeaders: a producer that leaves sequences out is told what it has sent
// before by the next leader too, and nothing of it is appended twice.
func TestGapsAcrossLeaders(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	first, later := int32(3<<14), int32(9<<14)
	c.inTxn(1, c.verify(1, 0).WithGaps(), txnBatch(t, 0, first, "a", "b"))
	c.inTxn(1, partition.TxnCheck{}.WithGaps(), txnBatch(t, 0, later, "c"))
	for range 2 {
		c.fetch(2)
		c.fetch(3)
	}
	c.elect(2, 2, 3)
	for _, again := range []struct {
		sequence int32
		values   []string
		at       kafka.Offset
	}{{first, []string{"a", "b"}, 0}, {later, []string{"c"}, 2}} {
		info, err := c.at(2).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, again.sequence, again.values...),
			partition.AcksAll, partition.TxnCheck{}.WithGaps(), now)
		if err != nil || !info.Duplicate || info.BaseOffset != again.at {
			t.Errorf("again at sequence %d: %+v, %v", again.sequence, info, err)
		}
	}
	var order *producerstate.OutOfOrderSequenceError
	for _, check := range []partition.TxnCheck{{}, partition.TxnCheck{}.WithGaps()} {
		_, err := c.at(2).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, later-1, "x"), partition.AcksAll, check, now)
		if !errors.As(err, &order) {
			t.Errorf("below the last sequence: %v", err)
		}
	}
	_, err := c.at(2).AppendTxn(kafka.NoLeaderEpoch, txnBatch(t, 0, later+7, "x"), partition.AcksAll, partition.TxnCheck{}, now)
	if !errors.As(err, &order) {
		t.Errorf("a gap of somebody who leaves none: %v", err)
	}
}

// TestMarkersThatWereHeldUp: where the producer's epoch does not rise, a marker of a
// transaction before the one that is open is told by its decision, by the leader that it was
// sent to; another leader takes none that was not sent to it.
func TestMarkersThatWereHeldUp(t *testing.T) {
	c := newCluster(t, 1, 2)
	marker := func(coordinatorEpoch int32, decision kafka.Offset) commitlog.Marker {
		return commitlog.Marker{ProducerID: 7, CoordinatorEpoch: coordinatorEpoch, Decision: decision, Commit: true}
	}
	epochOf := func(id kafka.BrokerID) kafka.LeaderEpoch { return c.at(id).LeaderEpoch() }
	sequence := int32(0)
	begin := func(id kafka.BrokerID) {
		t.Helper()
		c.inTxn(id, c.verify(id, 0), txnBatch(t, 0, sequence, "a"))
		sequence++
	}
	refused := func(id kafka.BrokerID, m commitlog.Marker) {
		t.Helper()
		marked, err := c.at(id).AppendMarkers(epochOf(id), []commitlog.Marker{m}, now)
		var late *producerstate.InvalidEpochError
		if err != nil || len(marked.Refused) != 1 || !errors.As(marked.Refused[0], &late) {
			t.Errorf("a marker of decision %d: %+v, %v", m.Decision, marked, err)
		}
		if _, _, open, _ := c.at(id).OngoingTxn(7); !open {
			t.Fatalf("a marker of decision %d ended the transaction after it", m.Decision)
		}
	}
	taken := func(id kafka.BrokerID, m commitlog.Marker) {
		t.Helper()
		marked, err := c.at(id).AppendMarkers(epochOf(id), []commitlog.Marker{m}, now)
		if err != nil || marked.Refused != nil {
			t.Fatalf("a marker of decision %d: %+v, %v", m.Decision, marked, err)
		}
		c.synced(id)
		if _, _, open, _ := c.at(id).OngoingTxn(7); open {
			t.Fatalf("the marker of decision %d did not end the transaction", m.Decision)
		}
	}
	begin(1)
	taken(1, marker(3, 10))
	taken(1, marker(3, 10)) // Its answer was lost.
	begin(1)
	refused(1, marker(3, 10))
	refused(1, marker(3, 9))
	taken(1, marker(3, 12))
	begin(1)
	refused(1, marker(3, 12))
	taken(1, marker(4, 5)) // Another coordinator, whose decisions are others.
	begin(1)
	for range 2 {
		c.fetch(2)
	}
	before := epochOf(1)
	c.elect(2, 1, 2)
	for believed, m := range map[kafka.LeaderEpoch]commitlog.Marker{before: marker(4, 5), before + 100: marker(4, 7)} {
		_, err := c.at(2).AppendMarkers(believed, []commitlog.Marker{m}, now)
		var fenced *partition.FencedEpochError
		var unknown *partition.UnknownEpochError
		if !errors.As(err, &fenced) && !errors.As(err, &unknown) {
			t.Errorf("a marker that was sent under leader epoch %d: %v", believed, err)
		}
	}
	if _, _, open, _ := c.at(2).OngoingTxn(7); !open {
		t.Fatal("a marker that was sent to another leader ended the transaction")
	}
	taken(2, marker(4, 7))
	begin(2)
	refused(2, marker(4, 7))
}
