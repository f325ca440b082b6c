package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/strandline/strandline/internal/vfs"
)

// A stop in order notes which frame would have been next: all before it were
// durable. A log that ends earlier at a later start was damaged: it has no torn
// tail there. As frames are numbered through, the note stays true for ever, and
// is only replaced by the next one.
//
//	stop:     magic(8) version(4) preambleCRC(4) nextFrame(8) CRC(4)
const (
	stopMagic = "strQstp\n"
	stopName  = "stopped"
	stopTemp  = "stopped.tmp"
	stopBytes = preambleBytes + 12
)

// errStopSkipped marks errors after which nothing is noted, and a start finds what
// a crash leaves.
var errStopSkipped = errors.New("stop not noted")

// noteStop writes the note. An error that is not errStopSkipped is of a disk that
// failed.
func (w *wal) noteStop() error {
	if w.failed != nil || w.file == nil {
		return nil
	}
	buf := binary.LittleEndian.AppendUint64(appendPreamble(nil, stopMagic), w.nextFrame)
	buf = binary.LittleEndian.AppendUint32(buf, checksum(buf))
	temp := path.Join(w.dir, stopTemp)
	file, err := w.fs.Open(temp, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("%w: %w", errStopSkipped, err)
	}
	if _, err := file.WriteAt(buf, 0); err != nil {
		return fmt.Errorf("%w: %w", errStopSkipped, errors.Join(err, file.Close(), w.fs.Remove(temp)))
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", temp, err)
	}
	if err := w.fs.Rename(temp, path.Join(w.dir, stopName)); err != nil {
		return err
	}
	return w.fs.SyncDir(w.dir)
}

// readStop reads the note: 0 without one. One that is damaged is as good as
// none; it says so in damage.
func readStop(fsys vfs.FS, dir string) (nextFrame uint64, damage, err error) {
	name := path.Join(dir, stopName)
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	var version *VersionError
	if err := checkPreamble(name, data, stopMagic); errors.As(err, &version) {
		return 0, nil, err
	} else if err != nil {
		return 0, err, nil
	}
	body := stopBytes - 4
	if len(data) != stopBytes || checksum(data[:body]) != binary.LittleEndian.Uint32(data[body:]) {
		return 0, &CorruptionError{name, preambleBytes, "length or checksum is wrong"}, nil
	}
	return binary.LittleEndian.Uint64(data[preambleBytes:]), nil, nil
}

// checkStop refuses a log that is shorter than it was at the last stop in order.
func (s *scan) checkStop(fsys vfs.FS, dir string) error {
	want, damage, err := readStop(fsys, dir)
	if err != nil {
		return err
	}
	s.stopDamage = damage
	next, name, position := uint64(0), stopName, int64(0)
	if n := len(s.segments); n > 0 {
		last := s.segments[n-1]
		next, name, position = last.header.firstFrame+uint64(len(last.frames)), last.path, last.end
	}
	if next < want {
		return &CorruptionError{name, position, fmt.Sprintf(
			"the log ends before frame %d, and had %d more when the broker last stopped in order", next, want-next)}
	}
	return nil
}
