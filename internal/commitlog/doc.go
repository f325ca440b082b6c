// Package commitlog is the storage of partitions: Log, one partition's log, and
// Dir, the data directory that all logs of a broker share.
//
// A log is a list of segments, each a .log file with record batches in Kafka's
// format and two sparse indexes; where transactions were aborted, a list of those. Only the last segment, the active one, grows.
//
//	logStartOffset              recoveryPoint   durableEnd   logEndOffset
//	|--- sealed segments ---|--- active segment ----------------|
//	|--- on disk, in the segments -----|-- in the journal --|-?-|
//
// Invariants:
//
//	0 <= logStartOffset <= recoveryPoint <= durableEnd <= logEndOffset
//	a segment's batches rise in offset and begin at or above its base offset
//	what the checkpoint on disk vouches for is in the segments, synced
//	an append that failed has left nothing behind
//	a log that nobody wrote to has no file and no open handle
//	what began below a high watermark, and had not ended below it, is known to
//	be undecided before that high watermark is reached (stability.go)
//
// It is assumed that batches given to AppendAsLeader were validated (package
// record), and that no append runs while its caller truncates.
//
// Appends take the log's lock; one append is one write of the file and one entry
// for the journal. Reads take no lock: they see an immutable list of segments,
// and the newest batch boundaries of the active one (tailRing). A segment lives
// until its last reader has released it.
//
// Opening a log costs a listing of its directory. Its files are opened, and what
// appends need is loaded, at the first append or read; until then a log is some
// hundred bytes. Only what is newer than the checkpoint is read back.
//
// # Crashes
//
// What a crash may leave at each step, and what the next start does with it:
//
//   - Append: part of the bytes. The tail is cut at the last whole batch whose CRC
//     holds, then the journal's entries above the log's end are appended again.
//   - A second crash: whole batches of an append that the first one took, where
//     others were acknowledged since (stale.go). Those in the journal win. A
//     producer snapshot above the checkpoint is of nobody knows what, and goes.
//   - Roll: the new file empty or missing, or indexes of the old segment not
//     written. An empty last segment is the active one; indexes are rebuilt.
//   - Creation of a log: a directory without files, or none although the journal
//     has its first entries: the replay makes it again.
//   - Retention and DeleteRecords: the checkpoint gets the new log start before
//     a file is unlinked; what lies below it is unlinked at the next start.
//   - Truncation: see TruncateTo.
//   - Compaction: see ReplaceSegments.
//   - Checkpoint: two files are written in turn, so one of them is whole.
//   - Recovery itself: it changes nothing but torn tails, and the journal is kept,
//     or emptied only after everything that was found or replayed is synced.
//
// A torn tail looks like rot in the newest data. What tells them apart:
//
//		recoveryPoint      X: no whole batch follows      knownEnd
//		|--- read back ----|------- in doubt -------------|--- never acknowledged
//
//	  - knownEnd is known before anything is cut: the end of what the checkpoint or
//	    the journal says was durable. The journal is given up, whole or in part,
//	    only after the checkpoint on disk says as much.
//	  - X >= knownEnd: a torn tail. X < knownEnd and the journal has all of
//	    [X, knownEnd): cut, and healed by the replay. Otherwise, and when the log
//	    ends short of knownEnd after the replay: corruption.
//	  - Corruption freezes a log. Nothing of it changes on disk, what is intact
//	    below X is served, nothing above, and it takes no appends: no offset below
//	    knownEnd is given twice. The checkpoint keeps its recovery point and gets
//	    its knownEnd, so that the next start comes to the same result.
//	  - Whole batches that are cut or that a frozen log can't take from the journal
//	    are put aside in its directory, not unlinked.
//
// docs/format/segment.md has the rules in full. A batch's offset and leader epoch
// are not covered by its CRC: an offset is checked against its neighbours, an
// epoch is not.
//
// Lock order: syncMu -> mu. Callbacks (Options) are called without either.
//
// Deliberately absent: who leads, the high watermark, and waiting for records
// (package partition).
package commitlog
