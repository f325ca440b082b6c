// Package coordinator hosts shards on the partitions of an internal topic: one
// machine (package shard) per partition that this broker leads.
//
//	Do -> machine step -> Append -> Replay -> reply waits for the high watermark
//	                                            |
//	Run: loads partitions, ticks deadlines,     v
//	     and sends what the high watermark has passed
//
// A shard has one mutex; a request runs on the goroutine that brings it, so that
// requests of one connection take effect in order, and a group costs memory but
// no goroutine. Replies are sent without a lock held. Run serves all shards with
// one goroutine, and loads partitions with a few more.
//
// Leadership: Lead loads a partition up to where its log ended at that moment,
// and not beyond the high watermark. Resign, a partition that says it does not
// lead any more, and the end of Run drop the shard; whoever waits is told
// NOT_COORDINATOR and finds the next coordinator. A reply that has waited for the
// high watermark for too long becomes COORDINATOR_NOT_AVAILABLE, as in Kafka: the
// client asks for the coordinator again, and what it wrote may still be committed.
// There is no way back from a replayed record, and none is needed: what was appended
// is replayed, what could not be appended never was.
//
// Time: machines reckon by the wall clock, since what they write down must mean
// something after a restart. When somebody sets it, deadlines move along (clock.go).
//
// Reads: a step that changes nothing waits for no other broker, and a broker that was
// replaced without its knowledge would tell what was committed before that. So where it
// matters the step is run by BeginRead, which asks the replicas first when the controller
// was not heard of (partition.Confirm).
//
// Invariants:
//
//	a reply is sent only when the records of its step are committed
//	a record is replayed once, in the order of the log
//	parked replies per shard <= MaxParked, and each waits <= WriteTimeout
//
// Lock order: shard mutex -> the partition's locks. A Wake comes with those held
// and takes none of ours.
//
// Deliberately absent: what the records mean, and protocol codes beyond those
// for "not here", "not yet" and "too much".
package coordinator
