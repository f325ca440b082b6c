// Package idempotency remembers which idempotency keys a topic has records of, so
// that a retry over HTTP finds what its first try has written instead of writing
// it again. It is a pure table, and the form in which a key stands in a record:
// docs/format/idempotency.md.
//
// The table is made from the log: whoever holds it observes the records of a
// partition in the order of their offsets, first those that are there and then
// each that it appends. It may assume nothing else, and it forgets: a key whose
// record's timestamp is older than the window, and the oldest beyond so many of a
// partition.
//
// Invariant: a key has at most one entry; the entries of a partition are in the
// order of their offsets.
//
// It has one owner at a time. Deliberately absent: a clock, a lock, and the log.
package idempotency
