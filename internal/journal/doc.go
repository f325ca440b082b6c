// Package journal makes appends to many logs durable with one sync: the commit
// journal of a data directory.
//
// A log writes an append to its own file, without a sync, and enqueues it. The
// committer runs rounds. Each takes all that was enqueued since the last, makes
// it durable, and tells every log so:
//
//	Enqueue --copy--> round being filled --swap--> round being committed
//	                                                |        |
//	                     frame: one direct write + sync    the logs' own files
//	                                                |        |
//	                                               Log.Durable(end)
//
// The choice is made per log and round. A log that appended little has a copy
// in the frame; one that appended much, or found no room, has its own files
// synced. While the files of the journal are not ready, all do the latter.
//
// # Assumptions
//
// A block of 4 KiB that was synced stays as it is unless it is written again.
// A write that was not synced survives a crash in any part. A failed write or
// sync proves nothing about what is on disk: it is final for the journal, and
// every later request fails in the same way.
//
// Enqueue is called under the log's write lock, after the bytes are in the
// log's file, with the offsets of one log in order. So SyncFiles covers every
// entry that was enqueued before it began.
//
// # Invariants
//
//   - Order: a frame is written only after the one before it is durable. So
//     frame n+1 on disk means that frame n was durable, and only the last
//     frame can be torn. A hole before a whole frame is corruption.
//   - Chain: when a frame with an append at base is durable, all below base is
//     durable too, in the log's own files or in needed frames. A round ends
//     before the next is written, so a log may change its way every round.
//   - Needed: all entries of frames before neededFrom are durable in their
//     logs' own files. A file is written over only after a durable frame in
//     another file says so.
//   - Sequence: sequence numbers are never used for two frames that were
//     durable. A frame of a file's earlier use has a lower one and ends the
//     reading of that file. The journal's random id keeps all other bytes,
//     records of a client included, from passing for a frame.
//   - Truncation: once Truncate returned, no replay appends at or above the cut
//     what was enqueued before it. If the log is later synced by its own files,
//     a synced entry is durable before Durable is called; otherwise the
//     replayed truncation would cut off what those files alone have.
//   - Coverage: what a recovered journal says was durable of a log was, and
//     nothing that was truncated or forgotten is in it. It says so of all that
//     was acknowledged since the last release or Reset, but for what own files
//     alone have had for less than noteDelay. Before a release the owner is told
//     (Options.Checkpoint), so that it can write down what would be forgotten.
//   - No block that was synced is written again while it is needed: frames are
//     padded to blocks.
//
// # Crashes
//
//	during                   left on disk          recovery
//	making a file            a ".new" file         ignored; written over later
//	writing a frame          part of a frame       the journal ends before it;
//	                                               nobody was told it is durable
//	between frame and acks   a whole frame         replayed: more than was acked;
//	                                               not synced perhaps, so Open does
//	syncing own files        part of the bytes     not acked; the log cuts its tail
//	before a synced entry    a truncation before   not acked; the replay may cut it
//	                         newer bytes
//	recycling                entries in both       skipped: the log has them
//	before the first frame   a free file with old  lower sequences, not needed
//	of a reused file         frames
//	replay, before Reset,    the same entries      replayed again
//	or after Keep
//
// Own files may be newer than an entry: a log that was cut to 50 and synced can
// meet an older append at 2000. Replay leaves out what a later truncation cuts
// off whole, so that what it reports continues the log.
//
// A round that syncs own files leaves a note of how far they are durable, which
// rides in the next frame (notes.go): so a recovery can tell a torn tail in a
// log's own files from rot.
//
// What cannot be told apart is a torn last frame from rot in a last frame that
// was durable; both end the journal.
//
// # Pace and modes
//
// A sync costs about 100 us of CPU. Rounds under load start MinGap apart (or
// GapPerSync times the duration of a sync, if that is less), and twice that far apart
// from 12 MiB/s on, and further apart where records are replicated; after a pause a round
// starts at once, and so do most where most waits have gathered nothing (pace.go). Measured with
// BenchmarkMode on a virtual disk of some 250 MB/s that other programs used too
// (medians in us, journal against own files):
//
//	bytes per log     4 KiB       16 KiB      64 KiB       256 KiB
//	1 log          336 :  873   409 :  824   1199 :  791   1891 : 1082
//	6 logs        1012 :  952   894 : 1045   2217 :  997   4174 : 1522
//
// The lines cross between 16 and 64 KiB: FileSyncBytes is 32 KiB. But a round
// also gets long because the disk paused, and then to sync growing files makes
// the pause longer: at 5.5 MB/s, 100 ms of rest are 550 KB. So the limit holds
// only above FileSyncRate, where to write everything twice would fill the disk;
// below, a log may add 1 MiB to a round. docs/decisions/004-journal-modes.md
// has more.
//
// # Who may call what
//
// Open, Replay, Keep, Reset and Close are called by the owner, not at the same
// time as Run. Run is the committer and owns the background work, which zeroes
// new files, has busy logs written back and recycles. Enqueue, EnqueueSync,
// Truncate, Forget and Stats may be called from any goroutine. Lock order: a log's write lock,
// then Journal.mu, then fileSet.mu. No lock of the journal is held while a
// method of a Log runs, but for recycleMu around SyncFiles.
//
// Deliberately absent: reading entries back while running, retries after a
// failure, and any knowledge of what the data is.
package journal
