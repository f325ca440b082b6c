// Package session makes members of consumer groups out of callers that only ask
// for records now and then: a session joins the group through the coordinator,
// as any consumer does, keeps its place in the partitions it owns, heartbeats,
// takes part in rebalances, and leaves when nobody has asked for long enough.
//
//	caller --Consume--> session --Read--> partition
//	                       |
//	                       +---- JoinGroup, SyncGroup, Heartbeat,
//	                             OffsetFetch, OffsetCommit ----> coordinator
//
// A session is known by group, topic and member name, and is a static member of
// the group (KIP-345) by an instance id made of the latter two. So everything
// that must outlive a session is in the group: whoever meets the same name
// again, after a restart or on another broker, joins under the same instance id,
// gets what it had, and fences whoever had it before. A caller never sees any of
// that.
//
// Invariants:
//
//	records are handed out only of partitions that the session owns in the
//	  generation that the coordinator has at that moment
//	no two callers of a session are handed the same record, unless a seek, a
//	  rewind or a lost session lies between
//	a position never moves on by a read that was begun before a seek
//	sessions <= MaxSessions, and each has one goroutine, which Run waits for
//
// Lock order: a session's lock -> the locks of a partition's role and of its
// waiters, which answer at once. The coordinator and the log are called without
// it.
//
// Deliberately absent: HTTP and JSON, and any choice of broker: the caller is on
// the one that coordinates the group and leads the partitions.
package session
