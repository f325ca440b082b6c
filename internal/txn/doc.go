// Package txn is the transaction machine: which transactions there are, who may go
// on with them, and what becomes of them.
//
// A Shard holds the transactional ids of one partition of __transaction_state. It
// assumes that one goroutine at a time calls it, that requests were decoded and
// authorised and name partitions that exist, and that the host keeps the contract
// of package shard: append, Replay, then reply.
//
// The states of a transactional id (Kafka's, and in its record format):
//
//	       InitProducerID
//	        |
//	        v     a partition joins           EndTxn commit
//	     Empty ----------------> Ongoing -----------------> PrepareCommit
//	      | ^                     ^ |  |                          | every partition
//	      | |                     | |  | EndTxn abort, time is    v has its marker
//	abort | | InitProducerID      | |  | up, a new producer   CompleteCommit
//	of    | +---------------------|-|--|--------------------------+
//	none  |                       | |  v                          |
//	      |                       | | PrepareAbort                |
//	      v                       | v                             |
//	   CompleteAbort <------------|-+                             |
//	          a partition joins   +-------------------------------+
//
// What ends a transaction is the record of Prepare, once it is committed: from
// then on the decision stands, whatever crashes. The markers follow it, so they go
// out by Tick, in the same way after the record was written and after it was
// found by loading: the reply that carries a Markers to the sender waits for the
// high watermark as any other does.
//
// A request that comes while markers are written is parked until they are, instead
// of being refused with CONCURRENT_TRANSACTIONS at once: that is a matter of
// milliseconds, and clients back off for longer. When ParkTimeout is over it is
// refused.
//
// Fencing: a producer is told apart by its producer id and epoch, which must be the
// present ones. A new producer of the same transactional id, and a transaction whose
// time is up, get a higher epoch, and the abort marker carries it to every partition,
// which from then on takes nothing of the old one. The last epoch is never given to
// a client, so that there is always one left to fence with; when the others are used
// up, a new producer id takes over. EndTxn of version 5 (transactions version 2,
// KIP-890) raises the epoch each time, so that no request of one transaction can be
// taken for one of another.
//
// What is durable is the last record of each transactional id, and only Replay
// changes it. Parked requests, the markers that are still to be written, and
// deadlines are soft: after a change of coordinator all markers of a transaction
// that was ending are written again, which does no harm.
//
// Invariants:
//
//	a producer id and epoch that a client was given are never given to another
//	the outcome of a transaction never changes once its Prepare is appended
//	markers are sent only of a Prepare that is committed
//	a transaction completes only when each of its partitions has its marker
//	parked requests of one id <= MaxParked, and each waits <= ParkTimeout
//
// Deliberately absent: sending markers, drawing producer ids (a reply of
// NeedProducerID asks for one), two-phase commit with an outside coordinator
// (KIP-939), and any clock.
//
// Strings that the machine keeps are copies.
package txn
