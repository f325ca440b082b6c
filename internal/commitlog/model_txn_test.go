package commitlog_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// The transactions of the model: what a log should know follows from its batches
// alone, whatever it has been through.

// modelTxn is the part of a batch in a transaction.
type modelTxn struct {
	part   bool // Records of a transaction, or its marker.
	marker bool
	commit bool
	epoch  kafka.ProducerEpoch
}

// modelEnded is a transaction, ended or not.
type modelEnded struct {
	producer kafka.ProducerID
	first    kafka.Offset
	marker   kafka.Offset // kafka.NoOffset while it is open.
	commit   bool
}

// modelProducer is a transactional producer after some batches.
type modelProducer struct {
	epoch    kafka.ProducerEpoch
	sequence int32
	open     int // In the list of transactions; -1 if none is.
}

// transactions replays the batches.
func (m *logModel) transactions() ([]modelEnded, map[kafka.ProducerID]modelProducer) {
	var all []modelEnded
	producers := map[kafka.ProducerID]modelProducer{}
	for _, mb := range m.batches {
		if !mb.txn.part {
			continue
		}
		p, known := producers[mb.producer]
		if !known {
			p.open = -1
		}
		if p.epoch != mb.txn.epoch {
			p.sequence = 0
		}
		p.epoch = mb.txn.epoch
		switch {
		case mb.txn.marker && p.open >= 0:
			all[p.open].marker, all[p.open].commit = mb.base, mb.txn.commit
			p.open = -1
		case mb.txn.marker:
		default:
			p.sequence = mb.sequence + int32(mb.last-mb.base) + 1
			if p.open < 0 {
				p.open = len(all)
				all = append(all, modelEnded{producer: mb.producer, first: mb.base, marker: kafka.NoOffset})
			}
		}
		producers[mb.producer] = p
	}
	return all, producers
}

func (m *logModel) drawTxnProducer(t *rapid.T) (kafka.ProducerID, modelProducer) {
	id := kafka.ProducerID(rapid.IntRange(10, 13).Draw(t, "transactional producer"))
	_, all := m.transactions()
	p, known := all[id]
	if !known {
		p.open = -1
	}
	return id, p
}

// appendInTxn appends to a producer's transaction, or begins one.
func (m *logModel) appendInTxn(t *rapid.T) {
	id, p := m.drawTxnProducer(t)
	records := rapid.IntRange(1, 3).Draw(t, "records")
	mb := modelBatch{
		value: fmt.Sprintf("txn %d", rapid.Uint16().Draw(t, "value")), timestamp: m.now,
		producer: id, sequence: p.sequence, epoch: m.epoch, txn: modelTxn{part: true, epoch: p.epoch},
	}
	logEnd, needed, err := m.log.BeginVerification(id, p.epoch)
	if err != nil || needed != (p.open < 0) {
		t.Fatalf("begin verification: %v, %v, open %d", needed, err, p.open)
	}
	if needed {
		_, err := m.log.AppendAsLeader([]record.Batch{m.build(mb, records)}, m.epoch, time.UnixMilli(m.now))
		var state *producerstate.TransactionStateError
		if !errors.As(err, &state) {
			t.Fatalf("append without a verification: %v", err)
		}
	}
	v := commitlog.Verification{Verified: needed, LogEnd: logEnd}
	info, err := m.log.AppendVerified([]record.Batch{m.build(mb, records)}, m.epoch, v, time.UnixMilli(m.now))
	if err != nil || info.BaseOffset != m.end() {
		t.Fatalf("append to a transaction: %+v, %v, want %d", info, err, m.end())
	}
	mb.base, mb.last = m.end(), m.end()+kafka.Offset(records)-1
	m.batches, m.tail = append(m.batches, mb), mb.last+1
}

// endTxn appends a marker, whether there is something to end or not.
func (m *logModel) endTxn(t *rapid.T) {
	id, p := m.drawTxnProducer(t)
	m.mark(t, id, p)
}

func (m *logModel) mark(t *rapid.T, id kafka.ProducerID, p modelProducer) {
	m.coordinator++
	marker := commitlog.Marker{
		ProducerID: id, ProducerEpoch: p.epoch, CoordinatorEpoch: m.coordinator,
		Commit: rapid.Bool().Draw(t, "commit"), Bumped: rapid.Bool().Draw(t, "bumped"),
	}
	if marker.Bumped {
		marker.ProducerEpoch++
	}
	info, refused, err := m.log.AppendMarkers([]commitlog.Marker{marker}, m.epoch, time.UnixMilli(m.now))
	if err != nil || refused != nil || info.BaseOffset != m.end() || info.LastOffset != m.end() {
		t.Fatalf("append a marker: %+v, %v, %v", info, refused, err)
	}
	m.batches = append(m.batches, modelBatch{
		base: m.end(), last: m.end(), timestamp: m.now, producer: id, sequence: -1, epoch: m.epoch,
		value: string([]byte{0, 0, byte(m.coordinator >> 24), byte(m.coordinator >> 16), byte(m.coordinator >> 8), byte(m.coordinator)}),
		txn:   modelTxn{part: true, marker: true, commit: marker.Commit, epoch: marker.ProducerEpoch},
	})
	m.tail++
}

// appendLate appends what was verified before a marker came.
func (m *logModel) appendLate(t *rapid.T) {
	id, p := m.drawTxnProducer(t)
	if p.open >= 0 {
		return
	}
	logEnd, _, err := m.log.BeginVerification(id, p.epoch)
	if err != nil {
		t.Fatal(err)
	}
	m.mark(t, id, p)
	_, all := m.transactions()
	late := modelBatch{
		timestamp: m.now, producer: id, sequence: all[id].sequence, txn: modelTxn{part: true, epoch: all[id].epoch},
	}
	_, err = m.log.AppendVerified([]record.Batch{m.build(late, 1)}, m.epoch,
		commitlog.Verification{Verified: true, LogEnd: logEnd}, time.UnixMilli(m.now))
	var state *producerstate.TransactionStateError
	if !errors.As(err, &state) {
		t.Fatalf("append after the marker: %v", err)
	}
}

// replicate raises the high watermark.
func (m *logModel) replicate(t *rapid.T) {
	m.highWatermark = max(m.highWatermark, m.start)
	if m.safe > m.highWatermark {
		m.highWatermark += kafka.Offset(rapid.Int64Range(0, int64(m.safe-m.highWatermark)).Draw(t, "replicated"))
	}
	m.log.Replicated(m.highWatermark)
}

// forgetDecided notes that the log may have forgotten which markers are above the high
// watermark.
func (m *logModel) forgetDecided() {
	m.highWatermark, m.exactFrom = min(m.highWatermark, m.end()), m.end()
}

// lastStable returns the last stable offset, if markers at or above an offset are not
// replicated.
func (m *logModel) lastStable(from kafka.Offset) kafka.Offset {
	all, _ := m.transactions()
	stable := m.highWatermark
	for _, x := range all {
		if x.marker == kafka.NoOffset || x.marker >= from {
			stable = min(stable, x.first)
		}
	}
	return max(stable, m.start)
}

// checkStable compares the last stable offset and what is open.
func (m *logModel) checkStable(t *rapid.T) {
	m.highWatermark = max(m.highWatermark, m.start)
	m.log.Replicated(m.highWatermark)
	least, most := m.lastStable(m.highWatermark), m.lastStable(max(m.highWatermark, m.exactFrom))
	if got := m.log.StableBelow(m.highWatermark); got < least || got > most {
		t.Fatalf("last stable offset %d, want one of [%d, %d]; high watermark %d", got, least, most, m.highWatermark)
	}
	all, producers := m.transactions()
	for id, p := range producers {
		first, epoch, open, err := m.log.OngoingTxn(id)
		if err != nil || open != (p.open >= 0) || open && (first != all[p.open].first || epoch != p.epoch) {
			t.Fatalf("ongoing of %d: %d, %d, %v, %v, want %+v", id, first, epoch, open, err, p)
		}
	}
}

// checkAborted compares the list of aborted transactions of a range.
func (m *logModel) checkAborted(t *rapid.T) {
	m.highWatermark = max(m.highWatermark, m.start)
	m.log.Replicated(m.highWatermark)
	stable := m.log.StableBelow(m.highWatermark)
	if stable <= m.start {
		return
	}
	from := m.start + kafka.Offset(rapid.Int64Range(0, int64(stable-m.start)).Draw(t, "from"))
	upTo := from + kafka.Offset(rapid.Int64Range(0, int64(stable-from)).Draw(t, "up to"))
	got, err := m.log.AbortedTxns(from, upTo)
	if err != nil {
		t.Fatal(err)
	}
	var want []modelEnded
	all, _ := m.transactions()
	for _, x := range all {
		if x.marker >= from && x.first < upTo && !x.commit && from < upTo {
			want = append(want, x)
		}
	}
	slices.SortFunc(want, func(a, b modelEnded) int { return int(a.marker - b.marker) })
	same := slices.EqualFunc(got, want, func(a commitlog.AbortedTxn, x modelEnded) bool {
		return a.ProducerID == x.producer && a.FirstOffset == x.first && a.LastOffset == x.marker
	})
	if !same {
		t.Fatalf("aborted in [%d, %d): %+v, want %+v", from, upTo, got, want)
	}
}
