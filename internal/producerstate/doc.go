// Package producerstate is what one log knows of its idempotent producers: the
// last batches of each, to answer a retried batch with the offsets it already
// has and to refuse a gap, and each one's open transaction.
//
// A producer numbers its records per partition. Its next batch must start where
// the last one ended; the sequence after 2^31-1 is 0. The last five batches are
// remembered, because a client has at most five in flight to one broker:
//
//	        base sequence   last sequence of the producer's newest batch
//	        of the oldest   |
//	        |               |  next: the only sequence that is new
//	        v               v  v
//	........[batch][b][ba][b]  .
//	   |    '---- duplicates if they match a batch exactly, else out of order
//	   '--------- out of order, unless they are found in the log
//
// What lies before all that is remembered may come again as well: clients may have more
// than five batches on their way when a leader is cut off. Kafka calls it out of order, and
// its own clients then try again until their time is up. Here the error says where in the
// log it would be (OutOfOrderSequenceError.UpTo), and package commitlog looks there.
//
// A producer that numbers requests instead of records leaves sequences out (Append.Gaps):
// then each that is above the last one is new.
//
// Assumptions: Update is called for every batch with a producer id in the order
// of the log, both by the leader after the append and by everybody who reads
// the log back. Check alone decides whether the leader may append.
//
// State outlives the batches that made it: retention and DeleteRecords do not
// touch it. It ends by Expire, or when more producers than Options.MaxProducers
// came by, oldest first. Truncation of the log is not undone step by step: the
// owner decodes the newest snapshot at or below the new end and updates the
// table with the batches from there on (docs/format/producer-snapshot.md).
//
// A transaction begins with its producer's first transactional batch and ends with a
// marker. Check lets one begin only on the word of its coordinator, and only if no
// marker of the producer came after that was asked for: a batch that was held up until
// its transaction was aborted would begin another, which nobody would end (KIP-890).
//
// A Table has one owner at a time, the log under its write lock. Deliberately
// absent: reading batches (commitlog), and deciding what to do about an unknown
// producer other than by Options.
package producerstate
