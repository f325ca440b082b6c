// Package cleaner compacts logs: of each key it keeps the latest record.
//
// A pass over one log reads what was not compacted yet (the dirty part) into a
// map from key to latest offset, and then rewrites the log's segments from the
// beginning up to where the map reaches, without the records that a later one
// replaces. The map has a fixed size; what does not fit is left to the next
// pass. Segments that became small are joined.
//
//	log start      cleaned to                map reaches         active segment
//	|--- clean -------|--- dirty, in the map ----|--- dirty, later ---|--- never --|
//	|--------------- rewritten ------------------|
//
// Invariants:
//
//	a record keeps its offset; the order of records is the log's
//	the latest record of a key is kept, unless it is a tombstone (a null value)
//	that readers had delete.retention.ms to see, counted from the first pass
//	over it (KIP-534)
//	the last batch of each producer is kept, empty if need be: it has the
//	producer's last sequence
//	control batches are kept; transactions come in a later part
//	the active segment, and what is at or above the high watermark, are never
//	touched
//
// Keys are compared by two 64-bit hashes with seeds of the process: a key that
// collides with another by chance is the only way to lose a record, and the
// chance with 2^40 keys is about 2^-48.
//
// It assumes that nothing else compacts the log. A Cleaner is used by one
// goroutine. Deliberately absent: retention (commitlog does it), and which logs
// there are (the owner says).
package cleaner
