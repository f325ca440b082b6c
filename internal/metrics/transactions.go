package metrics

import "github.com/strandline/strandline/internal/txn"

func transactionMetrics() []Metric {
	return []Metric{
		{
			"strandline_transactional_ids", gauge, labels("state"),
			"Transactional ids that this broker coordinates: open (a transaction takes records), ending (it " +
				"is decided, and some partition has no marker yet) or idle.", "",
		},
		{
			"strandline_transaction_oldest_seconds", gauge, nil,
			"For how long the oldest transaction that this broker coordinates is open or ending; 0 if none is. " +
				"Readers of what is committed wait for it.", "",
		},
	}
}

func (s *Sources) collectTransactions(to *scrape) {
	var all txn.Counts
	// A shard that is being loaded is told of once it is there.
	_ = s.Transactions(func(m *txn.Shard) {
		c := m.Counts()
		all.IDs += c.IDs
		all.Ongoing += c.Ongoing
		all.Ending += c.Ending
		if c.OldestMs > 0 && (all.OldestMs == 0 || c.OldestMs < all.OldestMs) {
			all.OldestMs = c.OldestMs
		}
	})
	to.gauge("strandline_transactional_ids", float64(all.Ongoing), "state", "open")
	to.gauge("strandline_transactional_ids", float64(all.Ending), "state", "ending")
	to.gauge("strandline_transactional_ids", float64(all.IDs-all.Ongoing-all.Ending), "state", "idle")
	oldest := 0.0
	if all.OldestMs > 0 {
		oldest = max(float64(s.Now().UnixMilli()-all.OldestMs)/1e3, 0)
	}
	to.gauge("strandline_transaction_oldest_seconds", oldest)
}
