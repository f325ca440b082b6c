package metrics_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTransactions: an open transaction is counted, and how long it lasts.
func TestTransactions(t *testing.T) {
	w := newWorld(t, nil)
	w.create("t", 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(w.server.Addr()), kgo.TransactionalID("id"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(w.ctx(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s := w.scrape()
	w.want(s, map[string]float64{
		"strandline_transactional_ids{state=open}":   1,
		"strandline_transactional_ids{state=ending}": 0,
		"strandline_transactional_ids{state=idle}":   0,
	})
	if age := s.value("strandline_transaction_oldest_seconds"); age < 0 || age > 60 {
		t.Errorf("the transaction is open for %v s", age)
	}
	if err := client.EndTransaction(w.ctx(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for w.scrape().value("strandline_transactional_ids", "state=idle") != 1 {
		if w.ctx().Err() != nil {
			t.Fatal("the transaction does not end")
		}
	}
	w.want(w.scrape(), map[string]float64{"strandline_transaction_oldest_seconds": 0})
}
