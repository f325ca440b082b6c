package transact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/history"
)

// readAlong reads, and at each marker tells where it is.
func (l *Load) readAlong(ctx context.Context, name string, committed bool) {
	cl, done := l.client(ctx, l.reader(committed)...)
	defer done()
	for ctx.Err() == nil {
		for rec := range cl.PollFetches(ctx).RecordsAll() {
			l.note(name, rec, committed)
		}
	}
}

func (l *Load) reader(committed bool) []kgo.Opt {
	options := l.options(kgo.ConsumeTopics(l.Topic), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return options
}

func (l *Load) note(name string, rec *kgo.Record, committed bool) {
	switch control := rec.Attrs.IsControl(); {
	case control && committed:
		l.History.At(name, history.Place{Partition: rec.Partition, Offset: rec.Offset + 1})
	case control:
	case committed:
		l.History.ReadCommitted(name, placeOf(rec), valueOf(rec))
	default:
		l.History.Read(name, placeOf(rec), valueOf(rec))
	}
}

// Verify ends the clients when all is processed, reads the topic from its start to its
// end, both ways, and notes whether it is whole. All brokers have to be there.
func (l *Load) Verify() {
	l.t.Helper()
	l.stop()
	l.clients.Wait()
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for i := range l.Producers {
		l.close(ctx, fmt.Sprint("producer-", i))
	}
	for i := range l.Contested {
		l.close(ctx, fmt.Sprint("contested-", i))
	}
	l.processed(ctx)
	l.transforming()
	l.transforms.Wait()
	for i := range l.Transforms {
		l.close(ctx, fmt.Sprint("transform-", i))
	}
	l.atRest(ctx)
	l.readAll(ctx, "the last committed reader", true, l.note)
	l.readAll(ctx, "", false, func(_ string, rec *kgo.Record, _ bool) {
		if !rec.Attrs.IsControl() {
			l.History.Final(placeOf(rec), valueOf(rec))
		}
	})
}

// close takes a transactional id, so that what a producer left open is aborted.
func (l *Load) close(ctx context.Context, id string) {
	l.t.Helper()
	cl, done := l.client(ctx, l.transactional(id, false)...)
	defer done()
	for l.took(ctx, cl, id) == nil {
		if ctx.Err() != nil {
			l.t.Fatalf("%s: no producer id", id)
		}
	}
}

// processed waits until something was made of each record.
func (l *Load) processed(ctx context.Context) {
	l.t.Helper()
	const patience = time.Minute
	tooLong, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if l.Transforms == 0 {
		return
	}
	for try := 0; ; try++ {
		l.atRest(ctx)
		left := map[history.Value]bool{}
		l.readAll(ctx, fmt.Sprint("reader of what is processed ", try), true, func(name string, rec *kgo.Record, committed bool) {
			l.note(name, rec, committed)
			if !rec.Attrs.IsControl() && fromOf(rec) == 0 {
				left[valueOf(rec)] = true
			}
		})
		l.readAll(ctx, fmt.Sprint("second reader of what is processed ", try), true, func(name string, rec *kgo.Record, committed bool) {
			l.note(name, rec, committed)
			if !rec.Attrs.IsControl() {
				delete(left, fromOf(rec))
			}
		})
		if len(left) == 0 {
			return
		}
		if tooLong.Err() != nil {
			l.t.Fatalf("of %d records nothing was made; the group is at %v", len(left), l.groupAt(ctx))
		}
		pause(ctx, time.Second)
	}
}

func (l *Load) groupAt(ctx context.Context) map[int32]int64 {
	cl, done := l.client(ctx, l.options()...)
	defer done()
	return l.committedOffsets(ctx, cl)
}

// ends returns the offsets at which partitions end.
func (l *Load) ends(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error)) map[int32]int64 {
	for ctx.Err() == nil {
		listed, err := list(ctx, l.Topic)
		if err == nil && listed.Error() == nil {
			ends := map[int32]int64{}
			listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
			return ends
		}
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

// atRest waits until no transaction is open.
func (l *Load) atRest(ctx context.Context) {
	l.t.Helper()
	cl, done := l.client(ctx, l.options()...)
	defer done()
	adm := kadm.NewClient(cl)
	for ctx.Err() == nil {
		stable, ends := l.ends(ctx, adm.ListCommittedOffsets), l.ends(ctx, adm.ListEndOffsets)
		rest := len(stable) == int(l.Partitions)
		for p, end := range ends {
			rest = rest && stable[p] == end
		}
		if rest {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
	l.t.Fatalf("transactions are open still: last stable offsets %v, ends %v",
		l.ends(l.t.Context(), adm.ListCommittedOffsets), l.ends(l.t.Context(), adm.ListEndOffsets))
}

// readAll reads to the last stable offset, as it is now.
func (l *Load) readAll(ctx context.Context, name string, committed bool, note func(string, *kgo.Record, bool)) {
	l.t.Helper()
	cl, done := l.client(ctx, l.reader(committed)...)
	defer done()
	left := l.ends(ctx, kadm.NewClient(cl).ListCommittedOffsets)
	for p, end := range left {
		if committed {
			l.History.At(name, history.Place{Partition: p}) // From here on nothing may be missing.
		}
		if end == 0 {
			delete(left, p)
		}
	}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			l.t.Fatal(errors.Join(fmt.Errorf("%s: %v are left", name, left), err))
		}
		for rec := range fetches.RecordsAll() {
			note(name, rec, committed)
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		}
	}
}
