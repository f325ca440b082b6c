// Package memfs is a vfs.FS in memory that can lose power and fill up.
//
// It keeps, beside what a running process sees, what a disk would still have
// after power loss: bytes count as safe after File.Sync, directory entries
// after FS.SyncDir. CrashClone returns a copy that holds what is safe plus a
// random part of the rest, so that a test can crash at any point, recover in
// the copy and compare.
//
// The model of a crash:
//
//   - The bytes of a file survive in blocks of BlockSize: a block that was
//     written since the last Sync is there by chance, else it has the bytes it
//     had at the last Sync, or zeros where it had none.
//   - The length of a file is, by chance, the synced one or a later one; a
//     file that grew may end anywhere between the two.
//   - What was written behind the length that survived stays in the last block,
//     unseen: after the next crash, a longer length that survives without the
//     bytes written since shows it again.
//   - The changes of one directory since its last SyncDir survive as a prefix:
//     a rename inside one directory happens whole or not at all, and nothing
//     survives without what preceded it there. Directories are independent, so
//     a file moved between two may be found in both, or in neither.
//
// A Direct file refuses what is not aligned to vfs.DirectAlign with EINVAL, as
// the strictest disk would. Direct writes are no more durable than others
// until Sync.
//
// All methods may be called from any goroutine. Misdirected writes, bit rot
// and failing operations are deliberately absent: package errorfs injects
// errors, and a test flips bits with WriteAt.
package memfs
