package clients_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// javaExample runs the example of docs/transactions.md, which is killed while it works
// and started again, a few times: each order that was committed gets one invoice.
func javaExample(t *testing.T, cp string, b *harness.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := kadm.NewClient(newClient(t, b.Addr)).CreateTopics(ctx, 2, 1, nil, "orders", "invoices"); err != nil {
		t.Fatal(err)
	}
	shop := newClient(t, b.Addr, kgo.TransactionalID("shop"), kgo.DefaultProduceTopic("orders"))
	reader := newClient(t, b.Addr, kgo.ConsumeTopics("invoices"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	want, invoices, next := map[string]int{}, map[string]int{}, map[int32]int64{}
	await := func(what string, enough func() bool) {
		t.Helper()
		for !enough() {
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				next[r.Partition] = r.Offset + 1
				if !r.Attrs.IsControl() {
					invoices[string(r.Value)]++
				}
			})
			if ctx.Err() != nil {
				t.Fatalf("no %s: %d invoices", what, len(invoices))
			}
		}
	}
	program := harness.StartJava(t, cp, "Invoices", b.Addr)
	const transactions, each = 30, 10
	for i := range transactions {
		if i%8 == 7 { // As soon as it goes on.
			before := len(invoices)
			await("more invoices", func() bool { return len(invoices) > before })
			program.Kill()
			program = harness.StartJava(t, cp, "Invoices", b.Addr)
		}
		if err := shop.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for k := range each {
			order := fmt.Sprintf("%d-%d", i, k)
			shop.Produce(ctx, kgo.StringRecord(order), kgo.AbortingFirstErrPromise(shop).Promise())
			if i%3 != 2 {
				want["invoice for "+order] = 1
			}
		}
		if err := shop.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if err := shop.EndTransaction(ctx, i%3 != 2); err != nil {
			t.Fatal(err)
		}
	}
	await("invoice for each", func() bool { return len(invoices) >= len(want) })
	select {
	case <-program.Ended():
		t.Error("the example ended by itself")
	default:
	}
	program.Kill()
	ends, err := kadm.NewClient(reader).ListCommittedOffsets(ctx, "invoices")
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	await("end of the invoices", func() bool {
		read := true
		ends.Each(func(o kadm.ListedOffset) { read = read && next[o.Partition] >= o.Offset })
		return read
	})
	if !maps.Equal(invoices, want) {
		t.Errorf("the invoices are %v, and should be %v", invoices, want)
	}
}
