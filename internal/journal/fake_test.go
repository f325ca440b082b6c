package journal_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// fakeLog is a log whose records have eight bytes: a number that the test
// never uses twice, sealed. Its one file holds record i at position 8*i.
type fakeLog struct {
	id   kafka.TopicIDPartition
	file vfs.File

	mu      sync.Mutex // Held around append and Enqueue, as a log's write lock is.
	end     kafka.Offset
	durable kafka.Offset
	failed  error
	syncs   int
	wasCut  bool // There was something behind the last whole record.
	changed *sync.Cond
	// onDurable is called after each Durable.
	onDurable func(kafka.Offset)
}

func logID(n int) kafka.TopicIDPartition {
	return kafka.TopicIDPartition{ID: kafka.TopicID{1, byte(n)}, Partition: int32(n)}
}

// seal makes a record of a number: with a checksum whose last byte is not
// zero, so that a torn record is none.
func seal(n uint64) uint64 { return n<<16 | n*0x9e37>>3&0xfffe | 1 }

func logName(id kafka.TopicIDPartition) string { return fmt.Sprintf("log-%d", id.Partition) }

// openLog opens log n, whose file may be there already.
func openLog(t testing.TB, fsys vfs.FS, n int) *fakeLog {
	t.Helper()
	l := &fakeLog{id: logID(n)}
	l.changed = sync.NewCond(&l.mu)
	var err error
	if l.file, err = fsys.Open(logName(l.id), vfs.ReadWrite|vfs.Create); err != nil {
		t.Fatal(err)
	}
	size, err := l.file.Size()
	if err != nil {
		t.Fatal(err)
	}
	// A hole or a torn record ends the log, as a batch with a bad CRC does.
	b := make([]byte, size)
	if _, err := l.file.ReadAt(b, 0); err != nil && size > 0 {
		t.Fatal(err)
	}
	for l.end = 0; int(l.end+1)*8 <= len(b); l.end++ {
		if v := binary.BigEndian.Uint64(b[l.end*8:]); v != seal(v>>16) {
			break
		}
	}
	l.wasCut = size > int64(l.end)*8
	if err := l.file.Truncate(int64(l.end) * 8); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *fakeLog) ID() kafka.TopicIDPartition { return l.id }

func (l *fakeLog) SyncFiles() error {
	l.mu.Lock()
	l.syncs++
	l.mu.Unlock()
	return l.file.Sync()
}

func (l *fakeLog) StartWriteback() { l.file.StartWriteback(0, int64(l.endNow())*8) }

func (l *fakeLog) endNow() kafka.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *fakeLog) Durable(end kafka.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = max(l.durable, end)
	if l.onDurable != nil {
		l.onDurable(l.durable)
	}
	l.changed.Broadcast()
}

func (l *fakeLog) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	l.changed.Broadcast()
}

func encode(values []uint64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// append appends records and enqueues them, or asks for a sync of files.
func (l *fakeLog) append(j *journal.Journal, values ...uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	data := encode(values)
	if err := l.writeLocked(data); err != nil {
		return err
	}
	j.Enqueue(l, l.end-kafka.Offset(len(values)), l.end, data)
	return nil
}

func (l *fakeLog) writeLocked(data []byte) error {
	if _, err := l.file.WriteAt(data, int64(l.end)*8); err != nil {
		return err
	}
	l.end += kafka.Offset(len(data) / 8)
	return nil
}

// wait waits until everything below end is durable or the log failed.
func (l *fakeLog) wait(end kafka.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.durable < end && l.failed == nil {
		l.changed.Wait()
	}
	return l.failed
}

func (l *fakeLog) content(t testing.TB) []uint64 {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := make([]byte, l.end*8)
	if len(b) > 0 {
		if _, err := l.file.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	values := make([]uint64, l.end)
	for i := range values {
		values[i] = binary.BigEndian.Uint64(b[i*8:])
	}
	return values
}

// replay applies an entry as recovery does.
func (l *fakeLog) replay(e journal.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == journal.Append && e.BaseOffset < l.end {
		// What differs was left by an earlier crash.
		have := make([]byte, 8*(min(l.end, e.EndOffset)-e.BaseOffset))
		if _, err := l.file.ReadAt(have, int64(e.BaseOffset)*8); err != nil {
			return err
		}
		same := 0
		for same < len(have) && have[same] == e.Data[same] {
			same++
		}
		if same < len(have) {
			l.end, l.wasCut = e.BaseOffset+kafka.Offset(same/8), true
			if err := l.file.Truncate(int64(l.end) * 8); err != nil {
				return err
			}
		}
	}
	switch {
	case e.Kind == journal.Truncate:
		if e.EndOffset < l.end {
			l.end = e.EndOffset
			l.wasCut = true
			return l.file.Truncate(int64(l.end) * 8)
		}
		return nil
	case e.EndOffset <= l.end:
		return nil
	case e.BaseOffset > l.end:
		return fmt.Errorf("log %v ends at %d, entry begins at %d", l.id, l.end, e.BaseOffset)
	default:
		return l.writeLocked(e.Data[8*(l.end-e.BaseOffset):])
	}
}
