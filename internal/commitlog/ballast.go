package commitlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/strandline/strandline/internal/vfs"
)

// Two reserves let a broker start, and stop, with not a byte free: the ballast,
// which is given back when the disk is full and taken again before producers
// can have it, and the checkpoint files, which have room to grow.

const (
	// minCheckpointRoom is what a checkpoint file takes at least: some 600 logs.
	minCheckpointRoom = 64 << 10
	// ballastStep is the unit of a ballast for which the disk has too little room.
	ballastStep = 256 << 10
	// startRoom is left free for what a start still has to write.
	startRoom = 2 << 20
)

// checkpointRoom returns how much to reserve for a checkpoint: the next power of
// two, so that it is rare that one grows.
func checkpointRoom(sizeBytes int) int64 {
	room := int64(minCheckpointRoom)
	for room < int64(sizeBytes) {
		room *= 2
	}
	return room
}

// reserveCheckpoints makes both checkpoint files and reserves their blocks. An
// empty one counts for nothing, so it need not be durable.
func (d *Dir) reserveCheckpoints() {
	for i := range uint64(2) {
		f, err := d.fs.Open(checkpointName(i), vfs.ReadWrite|vfs.Create)
		if err == nil {
			err = errors.Join(f.Allocate(0, minCheckpointRoom), f.Close())
		}
		if err != nil {
			d.options.Events.Problem("reserve room for checkpoints", err)
			return
		}
		d.room[i] = minCheckpointRoom
	}
}

// freeBallastIfFull gives the reserved bytes back if the disk has no room left
// to start with.
func (d *Dir) freeBallastIfFull() error {
	free, _, err := d.fs.Usage()
	if err != nil || d.options.BallastBytes < 0 || free > uint64(d.options.BallastBytes)/2 {
		return err
	}
	if err := removeFile(d.fs, ballastName); err != nil {
		return fmt.Errorf("free ballast: %w", err)
	}
	d.lacksBallast = true
	return nil
}

// sparing calls write, and gives as much of the ballast back for it as it takes if
// the disk is full: it is for the few writes without which nothing goes on.
func (e *env) sparing(write func() error) error {
	for {
		err := write()
		if !vfs.IsFull(err) {
			return err
		}
		if freed, shrinkErr := e.shrinkBallast(); !freed || shrinkErr != nil {
			return errors.Join(err, shrinkErr)
		}
	}
}

// shrinkBallast gives a little of the ballast back. It reports false if there is
// none.
func (e *env) shrinkBallast() (bool, error) {
	f, err := e.fs.Open(ballastName, vfs.ReadWrite)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("shrink ballast: %w", err)
	}
	held, err := f.Size()
	if err == nil && held > 0 {
		err = f.Truncate(max(0, held-ballastStep))
	}
	return held > 0, errors.Join(err, f.Close())
}

// restoreBallast reserves the ballast again once there is plenty of room.
func (d *Dir) restoreBallast() {
	want := d.options.BallastBytes
	if free, _, err := d.fs.Usage(); want > 0 && err == nil && free >= 4*uint64(want) {
		d.reserveBallast(want)
	}
}

// ReserveBallast reserves what there is room for. The broker calls it when its
// start is over and before producers can fill the disk.
func (d *Dir) ReserveBallast() { d.reserveLeaving(0) }

// reserveLeaving reserves as much of the ballast as leaves some room free. It tries
// out how much that is: what a file system says is free, it may keep for others.
func (d *Dir) reserveLeaving(leave int64) {
	if !d.lacksBallast {
		return
	}
	for n := d.options.BallastBytes; n >= ballastStep+leave; n -= ballastStep {
		if !d.reserveBallast(n) {
			continue
		}
		if leave > 0 && n < d.options.BallastBytes {
			d.resizeBallast(n - leave)
		}
		return
	}
}

// reserveBallast makes the ballast at least so large. It reports false if there is
// too little room.
func (d *Dir) reserveBallast(want int64) bool {
	if info, err := d.fs.Stat(ballastName); err == nil && info.Size() >= want {
		return true
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true // Another time.
	}
	return d.resizeBallast(want)
}

// resizeBallast gives the ballast a size. When there is too little room it reports
// false, and the ballast is as it was.
func (d *Dir) resizeBallast(want int64) bool {
	f, err := d.fs.Open(ballastName, vfs.ReadWrite|vfs.Create)
	if err == nil {
		var held int64
		if held, err = f.Size(); err == nil {
			err = f.Allocate(0, want)
		}
		if err != nil {
			want = held // What was reserved of it before the disk was full is given back.
		}
		err = errors.Join(err, f.Truncate(want), f.Close())
	}
	if err != nil && !vfs.IsFull(err) {
		d.options.Events.Problem("reserve ballast", err)
	}
	return !vfs.IsFull(err)
}
