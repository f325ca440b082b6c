// Package cleaner compacts logs: of each key it keeps the latest record.
//
// A pass over one log reads what was not compacted yet (the dirty part) into a
// map from key to latest offset, and then rewrites the log's segments from the
// beginning up to where the map reaches, without the records that a later one
// replaces. The map is bounded; what does not fit is left to the next pass.
// Segments that became small are joined.
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
//	the last batch of each producer that the log still knows is kept, empty if
//	need be: it has the producer's last sequence
//	records without a key are dropped
//	records of aborted transactions are dropped, and replace none
//	the marker of a transaction is kept as long as there is a batch of it, and for
//	delete.retention.ms after the first pass that found none; the last one of a
//	producer that wrote nothing since is kept
//	the active segment, and what is at or above the last stable offset, are never
//	touched
//	a batch is written anew only after its old CRC was checked
//
// Keys are compared by two 64-bit hashes with seeds of the process: a key that
// collides with another by chance is the only way to lose a record, and the
// chance with 2^40 keys is about 2^-48.
//
// It assumes that nothing else compacts the logs. Run is called once; each of
// its goroutines cleans one log at a time, and no two the same. A log that can't
// be compacted (corruption, a batch with more keys than the map may hold) is
// reported once and left alone until a restart; a log whose disk refuses, as a
// full one does, is tried again later and later. Deliberately absent: retention
// (commitlog does it), and which logs there are (the owner says).
package cleaner
