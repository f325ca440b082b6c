package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// cutTail cuts segment i at the writer's end and removes those after it. What
// the journal does not bring back is put aside.
func (l *Log) cutTail(segments *[]*segment, i int, report *RecoveredLog) error {
	s, end := (*segments)[i], l.w.end
	l.w.rearranged = true
	report.CutPath, report.CutPosition = s.path(logSuffix), end.position
	if end.nextOffset < l.knownEnd {
		report.HealedTo = l.knownEnd
	}
	for n := len(*segments) - 1; n > i; n-- {
		later := (*segments)[n]
		report.BytesCut += later.size.Load()
		later.deleted.Store(true)
		if err := l.dropSegment(later, report); err != nil {
			return err
		}
	}
	size := s.size.Load()
	report.BytesCut += size - end.position
	if err := l.putTailAside(size, report); err != nil {
		return err
	}
	if err := l.w.file.Truncate(end.position); err != nil {
		return fmt.Errorf("cut torn tail of %s: %w", report.CutPath, err)
	}
	s.size.Store(end.position)
	*segments = slices.Clone((*segments)[:i+1])
	l.segments.Store(segments)
	return nil
}

// dropSegment removes a segment behind a cut; its batches are put aside.
func (l *Log) dropSegment(s *segment, report *RecoveredLog) error {
	if s.size.Load() > 0 {
		name, err := l.cutName(s.baseOffset, logSuffix+cutSuffix)
		if err == nil {
			err = l.env.fs.Rename(s.path(logSuffix), name)
		}
		if err != nil {
			return fmt.Errorf("put %s aside: %w", s.path(logSuffix), err)
		}
		report.PutAside = append(report.PutAside, name)
	}
	return removeSegmentFiles(l.env.fs, l.dir, s.baseOffset)
}

// putTailAside copies the active segment from the writer's end on to another
// file, if there is a whole batch in it that the journal does not bring back.
// A crash that lost what nobody was told is durable can leave that as well. It
// is no error if there is no space for it.
func (l *Log) putTailAside(size int64, report *RecoveredLog) error {
	end := l.w.end
	_, found, err := l.findBatch(end, size, max(end.nextOffset, l.knownEnd))
	if err != nil || !found {
		return err
	}
	name, err := l.cutName(end.nextOffset, logSuffix+cutSuffix)
	if err != nil {
		return err
	}
	if err := copyRange(l.env.fs, l.w.file, end.position, size, name); err != nil {
		l.env.events.Alarm("put aside what recovery cuts off", err)
		return removeFile(l.env.fs, name)
	}
	report.PutAside = append(report.PutAside, name)
	return l.env.fs.SyncDir(l.dir)
}

// findBatch looks in the writer's file, from a boundary on, for a whole batch
// that reaches an offset. Where one begins nobody knows, behind damage.
func (l *Log) findBatch(at boundary, size int64, offset kafka.Offset) (h batchHeader, found bool, err error) {
	buf := make([]byte, min(max(0, size-at.position), 1<<20))
	for from := at.position; size-from >= headerBytes; from += int64(len(buf) - headerBytes + 1) {
		buf = buf[:min(int64(len(buf)), size-from)]
		if err := readFull(l.w.file, buf, from); err != nil {
			return h, false, err
		}
		for i := 0; i+headerBytes <= len(buf); i++ {
			n := bytes.IndexByte(buf[i+magicPosition:], magic)
			if i += n; n < 0 || i+headerBytes > len(buf) {
				break
			}
			h, err := parseHeader(buf[i:], from+int64(i))
			if err != nil || h.baseOffset < at.nextOffset || h.baseOffset-at.nextOffset >= 1<<31 ||
				h.lastOffset < offset || h.end().position > size {
				continue
			}
			if ok, err := checkBatch(l.w.file, h); ok || err != nil {
				return h, ok, err
			}
		}
	}
	return h, false, nil
}

// checkBatch reports whether the CRC of the batch at a header is right.
func checkBatch(f vfs.File, h batchHeader) (bool, error) {
	buf := make([]byte, h.sizeBytes)
	if err := readFull(f, buf, h.position); err != nil {
		return false, err
	}
	b, _, err := record.Next(buf)
	return err == nil && b.CheckCRC() == nil, nil
}

func readFull(f vfs.File, buf []byte, position int64) error {
	if n, err := f.ReadAt(buf, position); err != nil && !(errors.Is(err, io.EOF) && n == len(buf)) {
		return fmt.Errorf("read at position %d: %w", position, err)
	}
	return nil
}

// copyRange writes the bytes [from, to) of a file to a new one, durably.
func copyRange(fsys vfs.FS, f vfs.File, from, to int64, name string) error {
	out, err := fsys.Open(name, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	buf := make([]byte, min(to-from, 1<<20))
	for at := from; at < to && err == nil; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-at)]
		if err = readFull(f, buf, at); err == nil {
			_, err = out.WriteAt(buf, at-from)
		}
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// maxCutNames bounds how many files of one offset are put aside.
const maxCutNames = 100

// cutName returns a free name for what is put aside: that of the offset where it
// begins, with a number if an earlier recovery put the same aside.
func (l *Log) cutName(offset kafka.Offset, suffix string) (string, error) {
	name := fileName(l.dir, offset, suffix)
	free := name
	for n := 1; n < maxCutNames; n++ {
		if _, err := l.env.fs.Stat(free); errors.Is(err, fs.ErrNotExist) {
			return free, nil
		} else if err != nil {
			return "", err
		}
		free = name + "." + strconv.Itoa(n)
	}
	return free, nil
}

// isCut reports whether a file's suffix is of what was put aside.
func isCut(suffix string) bool {
	i := strings.Index(suffix, cutSuffix)
	return i >= 0 && (i+len(cutSuffix) == len(suffix) || suffix[i+len(cutSuffix)] == '.')
}
