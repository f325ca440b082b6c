package wild

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What has to be so, whatever clients do:
//
//	nothing stays open: when all clients are gone, and their transactions' time is up, read_committed
//	  readers can read all there is, and no group waits for a transaction
//	each marker is of a decision that the coordinator has written down about that partition, and each
//	  decision has its marker in each partition
//	the transactions of a producer in a partition end one after the other as it was decided about them
//	a read_committed reader, live or in the end, is given what stands before a marker of commit, all
//	  of that, and nothing else
//	a transaction has records of one epoch, epochs of a producer never fall, and no batch stands twice
//	what was acknowledged is where that was told
//	what EndTxn was told is what was decided
//	a group has the offset that was committed last
//	nobody who claims nothing is given what somebody else has

// Verify ends the clients, waits until everything has ended, and holds the logs against
// each other. All brokers have to be there.
func (l *Load) Verify() {
	l.t.Helper()
	l.stop()
	l.done.Wait()
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := l.client()
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics := []string{l.Topic, offsetsTopic}
	l.awaitClosed(ctx, adm, topics)
	s := &story{Load: l, decisions: map[int64][]decision{}, decided: map[decided]bool{}}
	for _, r := range l.readAll(ctx, stateTopic, false) {
		s.decision(r)
	}
	s.data(l.readAll(ctx, l.Topic, false), true)
	s.committed(l.readAll(ctx, l.Topic, true))
	s.replies()
	offsets := l.readAll(ctx, offsetsTopic, false)
	s.data(offsets, false)
	s.offsets(ctx, adm, offsets)
	for _, what := range l.broken {
		l.t.Error(what)
	}
	for _, code := range slices.Sorted(maps.Keys(l.codes)) {
		l.t.Logf("%6d %s", l.codes[code], code)
	}
}

const (
	offsetsTopic = "__consumer_offsets"
	stateTopic   = "__transaction_state"
)

// awaitClosed waits until no transaction is open.
func (l *Load) awaitClosed(ctx context.Context, adm *kadm.Client, topics []string) {
	l.t.Helper()
	const patience = 45 * time.Second // All time-outs, and then the markers.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for open := "not looked at"; open != ""; pause(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil {
			l.t.Fatalf("after %v there are open transactions: %s", patience, open)
		}
		open = ""
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		ends, err2 := adm.ListEndOffsets(ctx, topics...)
		txns, err3 := adm.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
		if err := errors.Join(err, err2, err3, stable.Error(), ends.Error()); err != nil {
			open = err.Error()
			continue
		}
		ends.Each(func(o kadm.ListedOffset) {
			if s, _ := stable.Lookup(o.Topic, o.Partition); s.Offset != o.Offset {
				open += fmt.Sprintf("%s-%d is stable to %d of %d; ", o.Topic, o.Partition, s.Offset, o.Offset)
			}
		})
		for id, x := range txns {
			open += fmt.Sprintf("%s is %s; ", id, x.State)
		}
	}
}

// readAll reads a topic from its start to its end, with markers, in order.
func (l *Load) readAll(ctx context.Context, topic string, committed bool) []*kgo.Record {
	l.t.Helper()
	options := []kgo.Opt{
		kgo.ConsumeTopics(topic), kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl := l.client(options...)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		l.t.Fatalf("the ends of %s: %v", topic, err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var all []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			l.t.Fatalf("%s is not read to its end, what is left is %v: %v", topic, left, fetches.Err())
		}
		for r := range fetches.RecordsAll() {
			all = append(all, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// readAlong reads what is committed while clients go on.
func (l *Load) readAlong(ctx context.Context) {
	cl := l.client(kgo.ConsumeTopics(l.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	next := map[int32]int64{}
	for ctx.Err() == nil {
		for r := range cl.PollFetches(ctx).RecordsAll() {
			l.mu.Lock()
			l.seen[place{r.Partition, r.Offset}] = valueOf(r)
			if r.Offset < next[r.Partition] {
				l.broken = append(l.broken, fmt.Sprintf("the reader went back to %d/%d", r.Partition, r.Offset))
			}
			next[r.Partition] = r.Offset + 1
			l.mu.Unlock()
		}
	}
}

func valueOf(r *kgo.Record) uint64 { return binary.BigEndian.Uint64(r.Value) }

// decided is what a producer's epoch was told.
type decided struct {
	credential
	commit bool
}

// decision is a record of Prepare.
type decision struct {
	decided
	at map[topicPartition]bool
}

type topicPartition struct {
	topic     string
	partition int32
}

// story is what the logs tell.
type story struct {
	*Load
	decisions map[int64][]decision // By producer id, in order.
	decided   map[decided]bool
	truth     map[place]uint64 // What is committed.
}

func (s *story) wrong(format string, args ...any) {
	const most = 30
	if len(s.broken) < most {
		s.broken = append(s.broken, fmt.Sprintf(format, args...))
	}
}

// decision takes in a record of __transaction_state.
func (s *story) decision(r *kgo.Record) {
	v := kmsg.NewTxnMetadataValue()
	if r.Attrs.IsControl() || len(r.Value) == 0 {
		return
	}
	if err := v.ReadFrom(r.Value); err != nil {
		s.wrong("%s-%d/%d: %v", r.Topic, r.Partition, r.Offset, err)
		return
	}
	const prepareCommit, prepareAbort, completeCommit, completeAbort = 2, 3, 4, 5
	if v.State < prepareCommit || v.State > completeAbort {
		return
	}
	d := decision{
		decided: decided{credential{v.ProducerID, v.ProducerEpoch}, v.State == prepareCommit || v.State == completeCommit},
		at:      map[topicPartition]bool{},
	}
	s.decided[d.decided] = true
	if v.State >= completeCommit {
		return
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			d.at[topicPartition{t.Topic, p}] = true
		}
	}
	s.decisions[v.ProducerID] = append(s.decisions[v.ProducerID], d)
}

// writer is a producer in a partition.
type writer struct {
	topicPartition
	producer int64
}

// part is what a producer has done in a partition.
type part struct {
	epoch   int16
	open    []*kgo.Record
	markers []marker
}

// marker is a marker, and whether there was something before it.
type marker struct {
	decided
	offset int64
	ends   bool
}

// data holds a partitioned log against the decisions.
func (s *story) data(records []*kgo.Record, values bool) {
	parts, twice := map[writer]*part{}, map[uint64]bool{}
	if values {
		s.truth = map[place]uint64{}
	}
	for _, r := range records {
		if r.ProducerID < 0 || !r.Attrs.IsTransactional() {
			continue
		}
		w := writer{topicPartition{r.Topic, r.Partition}, r.ProducerID}
		p := parts[w]
		if p == nil {
			p = &part{epoch: r.ProducerEpoch}
			parts[w] = p
		}
		if r.ProducerEpoch < p.epoch {
			s.wrong("%v: epoch %d at %d follows %d", w, r.ProducerEpoch, r.Offset, p.epoch)
		}
		p.epoch = r.ProducerEpoch
		if !r.Attrs.IsControl() {
			if values && twice[valueOf(r)] {
				s.wrong("%v: value %d stands twice, the second time at %d", w, valueOf(r), r.Offset)
			}
			if values {
				twice[valueOf(r)] = true
			}
			if len(p.open) > 0 && p.open[0].ProducerEpoch != r.ProducerEpoch {
				s.wrong("%v: a transaction goes on at %d with another epoch", w, r.Offset)
			}
			p.open = append(p.open, r)
			continue
		}
		const commit = 1
		m := marker{decided{credential{r.ProducerID, r.ProducerEpoch}, binary.BigEndian.Uint16(r.Key[2:]) == commit}, r.Offset, len(p.open) > 0}
		if m.ends && m.epoch-p.open[0].ProducerEpoch > 1 {
			s.wrong("%v: a marker at %d of epoch %d ends a transaction of epoch %d", w, r.Offset, m.epoch, p.open[0].ProducerEpoch)
		}
		for _, rec := range p.open {
			if values && m.commit {
				s.truth[place{rec.Partition, rec.Offset}] = valueOf(rec)
			}
		}
		p.markers, p.open = append(p.markers, m), nil
	}
	for w, p := range parts {
		if len(p.open) > 0 {
			s.wrong("%v: a transaction is open from %d on", w, p.open[0].Offset)
		}
		s.inOrder(w, p.markers)
	}
	s.allMarked(parts, records)
}

// inOrder looks whether markers end transactions as it was decided, one by one.
func (s *story) inOrder(w writer, markers []marker) {
	next := 0
	var all []decision
	for _, d := range s.decisions[w.producer] {
		if d.at[w.topicPartition] {
			all = append(all, d)
		}
	}
	for _, m := range markers {
		if !slices.ContainsFunc(all, func(d decision) bool { return d.decided == m.decided }) {
			s.wrong("%v: nobody has decided what the marker at %d says: %v", w, m.offset, m.decided)
		}
		if !m.ends {
			continue
		}
		for next < len(all) && all[next].decided != m.decided {
			next++
		}
		if next == len(all) {
			s.wrong("%v: the marker at %d ends a transaction that was not decided about, or otherwise: %v of %d decisions",
				w, m.offset, m.decided, len(all))
			return
		}
		next++
	}
}

// allMarked looks whether each decision has as many markers as there have to be.
func (s *story) allMarked(parts map[writer]*part, records []*kgo.Record) {
	if len(records) == 0 {
		return
	}
	topic := records[0].Topic
	for producer, all := range s.decisions {
		want := map[topicPartition]map[decided]int{}
		for _, d := range all {
			for at := range d.at {
				if at.topic != topic {
					continue
				}
				if want[at] == nil {
					want[at] = map[decided]int{}
				}
				want[at][d.decided]++
			}
		}
		for at, wanted := range want {
			got := map[decided]int{}
			if p := parts[writer{at, producer}]; p != nil {
				for _, m := range p.markers {
					got[m.decided]++
				}
			}
			for d, n := range wanted {
				if got[d] < n {
					s.wrong("%v: producer %d has %d markers of %d decisions %v", at, producer, got[d], n, d)
				}
			}
		}
	}
}

// committed holds what readers of what is committed have seen against what is.
func (s *story) committed(records []*kgo.Record) {
	got := map[place]uint64{}
	for _, r := range records {
		if !r.Attrs.IsControl() {
			got[place{r.Partition, r.Offset}] = valueOf(r)
		}
	}
	if !maps.Equal(got, s.truth) {
		s.wrong("read_committed gives %d records of %d that are committed", len(got), len(s.truth))
		for at, v := range got {
			if s.truth[at] != v {
				s.wrong("value %d at %v was aborted, and is read", v, at)
			}
		}
		for at, v := range s.truth {
			if got[at] != v {
				s.wrong("value %d at %v was committed, and is not read", v, at)
			}
		}
	}
	for at, v := range s.seen {
		if s.truth[at] != v {
			s.wrong("the reader that read along was given value %d at %v, which is not committed", v, at)
		}
	}
	s.t.Logf("%d records are committed, %d were read along", len(s.truth), len(s.seen))
}

// replies holds what clients were told against what is.
func (s *story) replies() {
	all := map[place]uint64{}
	for _, r := range s.readAll(context.Background(), s.Topic, false) {
		if !r.Attrs.IsControl() {
			all[place{r.Partition, r.Offset}] = valueOf(r)
		}
	}
	for v, at := range s.acked {
		b, found := s.sent[v], s.sent[all[at]]
		if found.value != v && (found.sequenced != b.sequenced || found.sequence != b.sequence) {
			s.wrong("value %d was acknowledged at %v, where value %d is", v, at, found.value)
		}
	}
	for _, e := range s.ends {
		d := decided{e.credential, e.commit}
		if e.version >= 5 {
			d.epoch++
		}
		if !s.decided[d] {
			s.wrong("%s: EndTxn v%d of %v was answered, commit %v, which was not decided", e.id, e.version, e.credential, e.commit)
		}
	}
}

// offsets holds the group's offsets against what was committed.
func (s *story) offsets(ctx context.Context, adm *kadm.Client, records []*kgo.Record) {
	want, open := map[int32]int64{}, map[writer]map[int32]*kgo.Record{}
	last := map[int32]int64{} // Where the offset that counts stands.
	for _, r := range records {
		w := writer{topicPartition{r.Topic, r.Partition}, r.ProducerID}
		if r.Attrs.IsControl() {
			for p, rec := range open[w] {
				v := kmsg.NewOffsetCommitValue()
				if binary.BigEndian.Uint16(r.Key[2:]) == 1 && rec.Offset > last[p] && v.ReadFrom(rec.Value) == nil {
					want[p], last[p] = v.Offset, rec.Offset
				}
			}
			delete(open, w)
			continue
		}
		k := kmsg.NewOffsetCommitKey()
		if len(r.Key) < 2 || binary.BigEndian.Uint16(r.Key) > 1 || k.ReadFrom(r.Key) != nil || k.Group != Group {
			continue
		}
		if open[w] == nil {
			open[w] = map[int32]*kgo.Record{}
		}
		open[w][k.Partition] = r
	}
	got, err := adm.FetchOffsets(ctx, Group)
	if err != nil {
		s.wrong("the group's offsets: %v", err)
		return
	}
	for p := range s.Partitions {
		o, ok := got.Lookup(s.Topic, p)
		offset, any := want[p]
		if ok != any || ok && o.At != offset {
			s.wrong("the group's offset of partition %d is %d (%v), committed was %d (%v)", p, o.At, ok, offset, any)
		}
	}
	s.t.Logf("the group has committed %v", want)
}
