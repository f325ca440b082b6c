package vfs

import (
	"errors"
	"syscall"
)

// IsFull reports whether an error goes away when space is freed.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// wholeSyncer is what an FS may offer besides: one sync of everything in it.
type wholeSyncer interface{ SyncAll() error }

// syncAllAbove is how many logs are worth one sync of everything: with hundreds
// of files it is many times cheaper than one each.
const syncAllAbove = 64

// SyncMany syncs everything at once if that is worth it for the files of n logs
// and the file system can. It reports whether it did.
func SyncMany(fsys FS, n int) (bool, error) {
	all, ok := fsys.(wholeSyncer)
	if !ok || n <= syncAllAbove {
		return false, nil
	}
	return true, all.SyncAll()
}
