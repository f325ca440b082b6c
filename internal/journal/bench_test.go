package journal_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

// sink is a log without files.
type sink struct {
	id      kafka.TopicIDPartition
	durable chan kafka.Offset
}

func (s *sink) ID() kafka.TopicIDPartition { return s.id }
func (s *sink) SyncFiles() error           { return nil }
func (s *sink) StartWriteback()            {}
func (s *sink) Failed(error)               {}

func (s *sink) Durable(end kafka.Offset) {
	select {
	case s.durable <- end:
	default:
	}
}

// BenchmarkEnqueue is what an append pays under its log's lock.
func BenchmarkEnqueue(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j, _ := start(b, memfs.New(), journal.Options{FileBytes: 16 << 20, FileSyncBytes: 1 << 30})
			l := &sink{id: logID(1), durable: make(chan kafka.Offset, 1)}
			for j.Stats().JournalWrites == 0 {
				j.Enqueue(l, 0, 1, make([]byte, size))
				<-l.durable
			}
			data := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				j.Enqueue(l, kafka.Offset(i), kafka.Offset(i+1), data)
			}
		})
	}
}

// diskLog writes to a file that grows and is never read.
type diskLog struct {
	id   kafka.TopicIDPartition
	file vfs.File

	mu       sync.Mutex
	position int64
	end      kafka.Offset
	sent     []time.Time // Of the records not yet durable.
	took     []time.Duration
	wrote    []time.Duration
}

func (l *diskLog) ID() kafka.TopicIDPartition { return l.id }
func (l *diskLog) SyncFiles() error           { return l.file.Sync() }
func (l *diskLog) StartWriteback()            {}
func (l *diskLog) Failed(err error)           { panic(err) }

func (l *diskLog) Durable(end kafka.Offset) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.sent) - int(l.end-end)
	for _, t := range l.sent[:n] {
		l.took = append(l.took, now.Sub(t))
	}
	l.sent = append(l.sent[:0], l.sent[n:]...)
}

func (l *diskLog) append(b *testing.B, j *journal.Journal, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	if _, err := l.file.WriteAt(data, l.position); err != nil {
		b.Fatal(err)
	}
	l.wrote = append(l.wrote, time.Since(began))
	l.position += int64(len(data))
	l.end++
	l.sent = append(l.sent, began)
	j.Enqueue(l, l.end-1, l.end, data)
}

func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkLatency appends at a rate, round robin over some logs, on the disk
// of the working directory's temporary files, and reports how long each append
// takes to become durable and what that costs.
func BenchmarkLatency(b *testing.B) {
	for _, c := range []struct {
		name        string
		logs, bytes int
		rate        int
		opt         journal.Options
	}{
		{"1log/1KiB/5000", 1, 1100, 5000, journal.Options{}},
		{"1log/1KiB/5000/gap500us", 1, 1100, 5000, journal.Options{MinGap: 500 * time.Microsecond}},
		{"1log/1KiB/5000/gap2ms", 1, 1100, 5000, journal.Options{MinGap: 2 * time.Millisecond}},
		{"1log/1KiB/5000/files", 1, 1100, 5000, journal.Options{WithoutFiles: true}},
		{"6logs/1KiB/20000", 6, 1100, 20000, journal.Options{}},
		{"1000logs/1KiB/20000", 1000, 1100, 20000, journal.Options{}},
	} {
		b.Run(c.name, func(b *testing.B) { measureLatency(b, c.logs, c.bytes, c.rate, c.opt) })
	}
}

func measureLatency(b *testing.B, logs, size, rate int, opt journal.Options) {
	fsys, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	j, stop := start(b, fsys, opt)
	all := make([]*diskLog, logs)
	for i := range all {
		file, err := fsys.Open(fmt.Sprint(i), vfs.ReadWrite|vfs.Create)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = &diskLog{id: logID(i), file: file}
	}
	data := make([]byte, size)
	appendAll := func(n int) {
		began := time.Now()
		for i := range n {
			all[i%logs].append(b, j, data)
			due := time.Duration(i+1) * time.Second / time.Duration(rate)
			if ahead := due - time.Since(began); ahead > 100*time.Microsecond {
				<-time.After(ahead)
			}
		}
	}
	for !opt.WithoutFiles && j.Stats().Files < 2 {
		<-time.After(10 * time.Millisecond)
	}
	appendAll(rate)
	for _, l := range all {
		l.mu.Lock()
		l.took, l.wrote = l.took[:0], l.wrote[:0]
		l.mu.Unlock()
	}
	before, cpu, began := j.Stats(), cpuTime(), time.Now()
	b.ResetTimer()
	appendAll(b.N)
	elapsed := time.Since(began)
	used := cpuTime() - cpu
	stop()
	b.StopTimer()
	var took, wrote []time.Duration
	for _, l := range all {
		took, wrote = append(took, l.took...), append(wrote, l.wrote...)
		if err := l.file.Close(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	slices.Sort(wrote)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	s := j.Stats()
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)*999/1000]), "p99.9-ms")
	b.ReportMetric(ms(wrote[len(wrote)*99/100]), "write-p99-ms")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(s.Rounds-before.Rounds)/elapsed.Seconds(), "rounds/s")
	b.ReportMetric(float64(s.RecycleSyncs-before.RecycleSyncs), "recycle-syncs")
	b.ReportMetric(float64(s.FileSyncs-before.FileSyncs), "file-syncs")
}

// BenchmarkMode commits rounds of the same size, either as copies in the
// journal or by syncing the logs' own files: where the lines cross is
// Options.FileSyncBytes. The files of the logs grow in both, and are written
// back sooner or later.
func BenchmarkMode(b *testing.B) {
	for _, logs := range []int{1, 6} {
		for _, size := range []int{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20} {
			for _, mode := range []string{"journal", "files"} {
				if logs*size > 7<<20 {
					continue // More than a frame takes.
				}
				opt := journal.Options{MinGap: 1, FileSyncBytes: 1 << 30, WithoutFiles: mode == "files"}
				b.Run(fmt.Sprintf("%dlogs/%dKiB/%s", logs, size>>10, mode), func(b *testing.B) {
					measureMode(b, logs, size, opt)
				})
			}
		}
	}
}

func measureMode(b *testing.B, logs, size int, opt journal.Options) {
	fsys, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	j, stop := start(b, fsys, opt)
	all := make([]*ackedLog, logs)
	for i := range all {
		file, err := fsys.Open(fmt.Sprint(i), vfs.ReadWrite|vfs.Create)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = &ackedLog{diskLog: diskLog{id: logID(i), file: file}, acked: make(chan struct{}, 1)}
	}
	round := func(data []byte) {
		for _, l := range all {
			l.append(b, j, data)
		}
		for _, l := range all {
			<-l.acked
		}
	}
	for i := 0; i < 300 && (opt.WithoutFiles || j.Stats().JournalWrites < 3); i++ {
		round(make([]byte, 4096))
		<-time.After(time.Millisecond)
	}
	data := make([]byte, size)
	before, cpu := j.Stats(), cpuTime()
	b.ResetTimer()
	for range b.N {
		round(data)
	}
	b.StopTimer()
	used, after := cpuTime()-cpu, j.Stats()
	stop()
	for _, l := range all {
		slices.Sort(l.took)
		if err := l.file.Close(); err != nil {
			b.Fatal(err)
		}
	}
	took := all[0].took
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "p90-us")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(after.JournalWrites-before.JournalWrites)/float64(b.N), "frames/op")
	b.ReportMetric(float64(b.N*logs*size)/b.Elapsed().Seconds()/1e6, "MB/s")
}

// ackedLog says when everything is durable.
type ackedLog struct {
	diskLog
	acked chan struct{}
}

func (l *ackedLog) append(b *testing.B, j *journal.Journal, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.WriteAt(data, l.position); err != nil {
		b.Fatal(err)
	}
	l.position += int64(len(data))
	l.end++
	l.sent = append(l.sent, time.Now())
	j.Enqueue(l, l.end-1, l.end, data)
}

func (l *ackedLog) Durable(end kafka.Offset) {
	l.diskLog.Durable(end)
	l.acked <- struct{}{}
}

// BenchmarkRecover opens a journal with ten entries of each of 3,000 logs, replays
// it and keeps it, as a start after a crash does.
func BenchmarkRecover(b *testing.B) {
	const logs, each = 3000, 10
	fsys := memfs.New()
	opt := journal.Options{FileBytes: 16 << 20}
	j, stop := start(b, fsys, opt)
	byID := map[kafka.TopicIDPartition]journal.Log{}
	all := make([]*fakeLog, logs)
	for i := range all {
		all[i] = openLog(b, fsys, i)
		byID[all[i].id] = all[i]
	}
	warmUp(b, j, all[0])
	for range each {
		for i, l := range all {
			if err := l.append(j, seal(uint64(i))); err != nil {
				b.Fatal(err)
			}
		}
		for _, l := range all {
			if err := l.wait(l.endNow()); err != nil {
				b.Fatal(err)
			}
		}
	}
	stop()
	for b.Loop() {
		j, err := journal.Open(fsys, "journal", opt)
		if err != nil {
			b.Fatal(err)
		}
		entries := 0
		err = j.Replay(func(journal.Entry) error { entries++; return nil })
		kept, keepErr := j.Keep(func(id kafka.TopicIDPartition) journal.Log { return byID[id] })
		if err := errors.Join(err, keepErr, j.Close()); err != nil || !kept || entries < logs {
			b.Fatalf("%d entries, kept %v, %v", entries, kept, err)
		}
	}
}
