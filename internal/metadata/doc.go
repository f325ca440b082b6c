// Package metadata is what the cluster knows about itself: the records that
// change it, and the immutable image that they build.
//
// Records are what the quorum replicates. An Image is derived from another by
// Apply, which is the only way to make one, so the live path, a restart and a
// follower run the same code. An image never changes: it may be read from any
// goroutine without a lock and kept as long as one likes. Deriving one copies
// little (a few kilobytes) however many topics there are; see index.go.
//
// Invariants: a topic's pointer is the same in two images unless the topic
// changed; the replicas and ISR of a partition are never empty, and its leader is
// in the ISR or there is none; partition and leader epochs only grow.
//
// The bytes of records and snapshots are documented in docs/format/metadata.md.
// The package assumes that someone else (the quorum's log) protects them by a
// checksum while they are records, and brings its own for snapshots.
//
// Deliberately absent: decisions. Who may create what belongs to controller.
package metadata
