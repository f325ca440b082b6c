// Package group is the consumer group machine: membership by the classic
// protocol, and committed offsets.
//
// A Shard holds the groups of one partition of __consumer_offsets. It assumes
// that one goroutine at a time calls it, that requests were decoded and
// authorised, and that the host keeps the contract of package shard: append,
// Replay, then reply.
//
// The states of a group:
//
//	          first member joins
//	Empty ------------------------> PreparingRebalance <------------------+
//	  ^                               |           ^                       |
//	  | nobody joined                 | all joined| a member joins,       |
//	  +-------------------------------+ or time   | leaves or expires     |
//	                                  | is up     |                       |
//	                                  v           |                       |
//	                            CompletingRebalance                       |
//	                                  | the leader's assignment           |
//	                                  v was appended                      |
//	                                Stable -------------------------------+
//
// What is durable and what is soft: a group's last metadata record (written when
// an assignment is made, when the group becomes empty, and when a static member
// gets a new member id) and its committed offsets are durable, and only Replay
// changes them. Members that are joining, parked callers and deadlines are soft,
// because Kafka's format has no record for them: after a change of coordinator,
// clients rejoin or go on heartbeating in the generation of the last record.
//
// Invariants:
//
//	an assignment is made at most once per generation, and counts from its record on
//	in Stable, every member's assignment is the one of the last metadata record
//	a commit is taken from a member of the current generation, or from anybody
//	  while the group is Empty
//	offsets expire only while the group is Empty
//
// Deliberately absent: the assignment of partitions (clients do it), the
// consumer protocol of KIP-848, and any clock: time is an argument, and what is to
// happen later is a deadline.
//
// Offsets that are committed in a transaction are part of its batches, and pending
// until its marker is replayed (see transactions.go).
//
// Strings and byte slices that the machine keeps are copies; those in responses
// may alias the request.
package group
