// Package metrics turns what the rooms count into Prometheus metrics.
//
//	rooms count in atomics  <-  collectors read them  <-  GET /metrics
//
// Nothing is counted here on behalf of a request for records: the rooms keep
// plain counts of their own, which a scrape reads, so a broker that nobody
// scrapes pays for the additions alone. Only what happens rarely (storage
// events, changes of the ISR) and HTTP requests are counted by this room's own
// types.
//
// It may assume that New is called once per broker and that its functions are
// safe for any number of scrapes at a time.
//
// Invariants: every name stands in the table (table.go) with its labels and its
// meaning, and docs/metrics.md is made from it; nothing is registered anywhere
// but in the registry that New returns; what a scrape costs grows with the
// partitions and groups here, never with records, requests or bytes.
//
// Deliberately absent: percentiles (histograms add up over brokers, percentiles
// do not), and any name that a client can make up as a label, but for topics and
// groups.
package metrics
