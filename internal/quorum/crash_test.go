package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// rewrite takes what the code does for what it should do.
var rewrite = flag.Bool("rewrite", false, "rewrite golden files")

var errDisk = errors.New("the disk says no")

// smallOptions make every path short: a segment holds a few entries, a
// snapshot comes after seven.
func smallOptions(fs vfs.FS, m quorum.Machine) quorum.Options {
	opt := options(fs, m)
	opt.SegmentBytes, opt.SnapshotEntries = 6<<10, 7
	return opt
}

// progress is what a workload has tried and what it was promised.
type progress struct {
	mu           sync.Mutex
	tried, acked int
}

func (p *progress) now() (tried, acked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried, p.acked
}

func (p *progress) set(tried, acked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried, p.acked = tried, acked
}

// item is the i-th entry of every workload; every fourth takes several blocks.
func item(i int) string {
	if i%4 == 3 {
		return fmt.Sprint(i, strings.Repeat("-", 5000))
	}
	return fmt.Sprint(i, strings.Repeat("-", 200))
}

// work adds entries over two runs of a quorum, one at a time, until something
// fails. It returns the first error.
func work(t *testing.T, fs vfs.FS, p *progress) error {
	t.Helper()
	for _, until := range []int{16, 21} {
		q, err := quorum.Open(smallOptions(fs, &list{}))
		if err != nil {
			return err
		}
		if err := workOn(run(t, q), p, until); err != nil {
			return err
		}
	}
	return nil
}

func workOn(n *node, p *progress, until int) (err error) {
	defer func() {
		n.cancel()
		err = errors.Join(err, <-n.ended, n.Close())
	}()
	for _, acked := p.now(); acked < until; acked++ {
		p.set(acked+1, acked)
		if err := n.add(context.Background(), item(acked)); err != nil {
			return err
		}
		p.set(acked+1, acked+1)
	}
	return nil
}

// check opens what a crash left: every acknowledged entry is there, in order,
// nothing that was never tried, and the log goes on over several segments. It
// returns how many entries there are at the end.
func check(t *testing.T, fs vfs.FS, tried, acked int, what string) int {
	t.Helper()
	for round, add := range []int{1, 7, 0} {
		m := &list{}
		q, err := quorum.Open(smallOptions(fs, m))
		if err != nil {
			t.Errorf("%s, round %d: %v", what, round, err)
			return 0
		}
		n := run(t, q)
		<-q.Ready()
		got := m.entries()
		if len(got) < acked || len(got) > tried {
			t.Errorf("%s, round %d: %d entries, %d were acknowledged and %d tried", what, round, len(got), acked, tried)
		}
		for i, e := range got {
			if e != item(i) {
				t.Errorf("%s, round %d: entry %d is %.20q", what, round, i, e)
			}
		}
		acked = len(got) + add
		tried = acked
		for i := len(got); i < acked; i++ {
			if err := n.add(t.Context(), item(i)); err != nil {
				t.Errorf("%s: add: %v", what, err)
			}
		}
		n.stop(t)
	}
	return acked
}

// crash is a disk at some moment.
type crash struct {
	disk         *memfs.FS
	tried, acked int
	what         string
}

// crashEverywhere runs f on a disk and returns the disk as power loss before
// each of its operations would leave it.
func crashEverywhere(disk *memfs.FS, p *progress, f func(vfs.FS)) []crash {
	var crashes []crash
	var ops uint64
	f(errorfs.Wrap(disk, func(op errorfs.Op) error {
		if !op.Kind.Changes() {
			return nil
		}
		ops++
		for _, percent := range []int{0, 50, 100} {
			tried, acked := p.now()
			crashes = append(crashes, crash{
				disk.CrashClone(ops, percent), tried, acked,
				fmt.Sprintf("power loss before operation %d, %v, %d%% survived", ops, op, percent),
			})
		}
		return nil
	}))
	return crashes
}

func TestPowerLossBeforeEveryOperation(t *testing.T) {
	p := &progress{}
	crashes := crashEverywhere(memfs.New(), p, func(fs vfs.FS) {
		if err := work(t, fs, p); err != nil {
			t.Fatal(err)
		}
	})
	if len(crashes) < 200 {
		t.Errorf("only %d crashes", len(crashes))
	}
	for i, c := range crashes {
		check(t, c.disk.CrashClone(0, 100), c.tried, c.acked, c.what)
		if i%13 != 0 {
			continue
		}
		// A second loss while the first is being repaired.
		again := crashEverywhere(c.disk, &progress{}, func(fs vfs.FS) {
			n := run(t, mustOpen(t, smallOptions(fs, &list{})))
			<-n.Ready()
			n.stop(t)
		})
		for _, second := range again {
			check(t, second.disk, c.tried, c.acked, c.what+", then "+second.what)
		}
	}
}

func mustOpen(t *testing.T, opt quorum.Options) *quorum.Quorum {
	t.Helper()
	q, err := quorum.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// Each operation in turn fails; whatever was acknowledged before is there after
// a restart, with and without a loss of power.
func TestEveryOperationFails(t *testing.T) {
	for n := int64(1); ; n++ {
		disk, p := memfs.New(), &progress{}
		failed := ""
		nth := errorfs.Nth(n, errDisk, nil)
		err := work(t, errorfs.Wrap(disk, func(op errorfs.Op) error {
			err := nth(op)
			if err != nil {
				failed = op.String()
			}
			return err
		}), p)
		if failed == "" {
			if err != nil || n < 70 {
				t.Errorf("after %d operations: %v", n, err)
			}
			return
		}
		if strings.HasPrefix(failed, "sync") && !errors.Is(err, errDisk) {
			t.Errorf("operation %d, %s: failed, and the work ended with %v", n, failed, err)
		}
		tried, acked := p.now()
		what := fmt.Sprintf("after operation %d failed, %s", n, failed)
		for _, percent := range []int{0, 50} {
			check(t, disk.CrashClone(uint64(n), percent), tried, acked, fmt.Sprintf("%s, %d%% survived", what, percent))
		}
		// The process starts again on what its predecessor wrote and never
		// synced; when it is told of, it has to outlast a loss of power.
		checkRestartThenPowerLoss(t, disk, tried, acked, what)
	}
}

func checkRestartThenPowerLoss(t *testing.T, disk *memfs.FS, tried, acked int, what string) {
	t.Helper()
	m := &list{}
	q, err := quorum.Open(smallOptions(disk, m))
	if err != nil {
		t.Errorf("%s, restarted: %v", what, err)
		return
	}
	found := q.Status()
	clone := disk.CrashClone(0, 0)
	again, err := quorum.Open(smallOptions(clone, &list{}))
	if err != nil {
		t.Errorf("%s, restarted, then power loss: %v", what, err)
		return
	}
	if diff := cmp.Diff(found, again.Status()); diff != "" {
		t.Errorf("%s: what a restart found did not outlast power loss (-found +left):\n%s", what, diff)
	}
	if err := errors.Join(q.Close(), again.Close()); err != nil {
		t.Error(err)
	}
	total := check(t, disk, tried, acked, what+", restarted")
	check(t, disk.CrashClone(0, 0), total, total, what+", restarted, then power loss")
}

// A failed sync ends the loop: nothing is taken afterwards, although the disk
// works again.
func TestFailedSyncIsFinal(t *testing.T) {
	fs := errorfs.Wrap(memfs.New(), nil)
	n := start(t, options(fs, &list{}))
	<-n.Ready()
	mustAdd(t, n, "a")
	fs.SetInjector(errorfs.Nth(1, errDisk, func(op errorfs.Op) bool { return op.Kind == errorfs.Sync }))
	if err := n.add(t.Context(), "b"); !errors.Is(err, errDisk) || !errors.Is(err, quorum.ErrStopped) {
		t.Errorf("add: %v", err)
	}
	if err := <-n.ended; !errors.Is(err, errDisk) {
		t.Errorf("Run: %v", err)
	}
	if err := n.add(t.Context(), "c"); !errors.Is(err, quorum.ErrStopped) {
		t.Errorf("add afterwards: %v", err)
	}
}

// A directory of another format version is refused, and not a byte changes.
func TestUnknownVersionIsLeftUntouched(t *testing.T) {
	disk := memfs.New()
	n := start(t, options(disk, &list{}))
	<-n.Ready()
	n.stop(t)
	for _, name := range fileNames(t, disk) {
		clone := disk.CrashClone(0, 100)
		file, err := clone.Open("data/quorum/"+name, vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(futurePreamble(name), 0); err != nil {
			t.Fatal(err)
		}
		fs := errorfs.Wrap(clone, func(op errorfs.Op) error {
			if op.Kind.Changes() || op.Flag&(vfs.Create|vfs.Truncate) != 0 {
				t.Errorf("%s of another version: %v", name, op)
			}
			return nil
		})
		_, err = quorum.Open(options(fs, &list{}))
		var version *quorum.VersionError
		if !errors.As(err, &version) || version.Version != 9 {
			t.Errorf("%s of another version: %v", name, err)
		}
	}
}

// Lost files are noticed, not taken for a new beginning.
func TestLostFilesAreCorruption(t *testing.T) {
	for _, lost := range []string{"snapshot-", "segment-"} {
		disk := memfs.New()
		n := start(t, smallOptions(disk, &list{}))
		mustAdd(t, n, "a", "b")
		n.stop(t)
		for _, name := range fileNames(t, disk) {
			if strings.HasPrefix(name, lost) {
				if err := disk.Remove("data/quorum/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
		var corrupt *quorum.CorruptionError
		if _, err := quorum.Open(smallOptions(disk, &list{})); !errors.As(err, &corrupt) {
			t.Errorf("without %s: %v", lost, err)
		}
	}
}

// A segment that was removed may be there again after power loss, with a gap
// behind it; it is removed again.
func TestRemovedSegmentComesBack(t *testing.T) {
	disk := memfs.New()
	n := start(t, smallOptions(disk, &list{}))
	mustAdd(t, n, item(0))
	first := "data/quorum/" + fileNames(t, disk)[0]
	before := readAll(t, disk, first)
	for i := 1; i < 30; i++ {
		mustAdd(t, n, item(i))
	}
	n.stop(t)
	file, err := disk.Open(first, vfs.ReadWrite|vfs.Create|vfs.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(before, 0); err != nil {
		t.Fatal(err)
	}
	check(t, disk, 30, 30, "with an old segment")
	if _, err := disk.Stat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old segment is still there: %v", err)
	}
}

func readAll(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	file, err := disk.Open(name, vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	if _, err := file.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

// The operations on the disk, one by one: what is synced when, and what is
// written again at a restart.
func TestTranscript(t *testing.T) {
	disk := memfs.New()
	wrapped := errorfs.Wrap(disk, nil)
	opt := options(wrapped, &list{})
	opt.SnapshotEntries = 5
	var got strings.Builder
	step := func(what string, f func()) {
		wrapped.Record()
		f()
		fmt.Fprintf(&got, "# %s\n%s\n", what, strings.Join(wrapped.Transcript(), "\n"))
	}
	var n *node
	step("first start", func() { n = start(t, opt); <-n.Ready() })
	step("an entry", func() { mustAdd(t, n, "a") })
	step("another, after a restart", func() {
		n.stop(t)
		opt.Machine = &list{}
		n = start(t, opt)
		<-n.Ready()
	})
	mustAdd(t, n, "b")
	// The round ends before the next decision: its snapshot is on record.
	step("the entry that makes it a snapshot", func() {
		mustAdd(t, n, "c")
		_ = n.Do(t.Context(), func() ([]byte, error) { return nil, nil })
	})
	n.stop(t)
	golden := filepath.Join("testdata", "transcript.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// silent is a transport nobody listens to.
type silent struct{}

func (silent) Send([]*raftpb.Message) {}
func (silent) Greet(bool)             {}

// follow plays a leader to a follower: entries, then others in their place,
// then a snapshot of another history, then the log behind it.
func follow(t *testing.T, n *node) {
	t.Helper()
	entries := func(from, to, term uint64) []*raftpb.Entry {
		var out []*raftpb.Entry
		for i := from; i <= to; i++ {
			out = append(out, &raftpb.Entry{
				Index: new(i), Term: new(term), Type: new(raftpb.EntryNormal), Data: fmt.Appendf(nil, "%d.%d", term, i),
			})
		}
		return out
	}
	appended := func(term, prev, prevTerm, commit uint64, es []*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{
			Type: new(raftpb.MsgApp), From: new(uint64(1)), To: new(uint64(2)), Term: new(term),
			Index: new(prev), LogTerm: new(prevTerm), Commit: new(commit), Entries: es,
		}
	}
	state := &list{applied: []string{"2.2", "2.3", "up to 20"}}
	data, err := state.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	data = append(make([]byte, 4), data...) // It tells of no members.
	for _, m := range []*raftpb.Message{
		appended(2, 1, 1, 3, entries(2, 9, 2)),
		appended(3, 7, 2, 3, entries(8, 8, 3)),
		{
			Type: new(raftpb.MsgSnap), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(4)),
			Snapshot: &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{
				Index: new(uint64(20)), Term: new(uint64(4)),
				ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}, AutoLeave: new(false)},
			}},
		},
		appended(4, 20, 4, 21, entries(21, 22, 4)),
	} {
		if err := n.Receive(t.Context(), quorum.Member{ID: 0}, m); err != nil {
			t.Fatal(err)
		}
	}
	for n.Status().AppliedIndex < 21 {
		if err := n.Do(t.Context(), func() ([]byte, error) { return nil, nil }); !isNotLeader(err) {
			t.Fatal(err)
		}
	}
}

func followerOptions(fs vfs.FS, m quorum.Machine) quorum.Options {
	opt := options(fs, m)
	opt.NodeID, opt.Voters, opt.Transport = 1, []kafka.BrokerID{0, 1}, silent{}
	opt.ElectionTicks = 1 << 30 // It never campaigns.
	return opt
}

// A follower loses power before each operation while it takes over a leader's
// history; afterwards the leader can bring it to the same state.
func TestFollowerLosesPower(t *testing.T) {
	want := []string{"2.2", "2.3", "up to 20", "4.21"}
	crashes := crashEverywhere(memfs.New(), &progress{}, func(fs vfs.FS) {
		m := &list{}
		n := start(t, followerOptions(fs, m))
		follow(t, n)
		if diff := cmp.Diff(want, m.entries()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		n.stop(t)
	})
	for _, c := range crashes {
		m := &list{}
		q, err := quorum.Open(followerOptions(c.disk, m))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		s := q.Status()
		if s.SnapshotIndex == 20 && s.LastIndex > 22 || s.SnapshotIndex != 20 && s.LastIndex > 9 {
			t.Errorf("%s: the histories are mixed: %+v", c.what, s)
		}
		n := run(t, q)
		follow(t, n)
		if diff := cmp.Diff(want, m.entries()); diff != "" {
			t.Errorf("%s: applied (-want +got):\n%s", c.what, diff)
		}
		n.stop(t)
	}
}

// Tools read a log in use and leave no trace.
func TestInspectReadsOnly(t *testing.T) {
	disk := memfs.New()
	n := start(t, smallOptions(disk, &list{}))
	var want []string
	for i := range 20 {
		want = append(want, item(i))
		mustAdd(t, n, item(i))
	}
	m := &list{}
	readOnly := errorfs.Wrap(disk, func(op errorfs.Op) error {
		if op.Kind.Changes() || op.Flag != vfs.ReadOnly {
			t.Errorf("inspecting does: %v", op)
		}
		return nil
	})
	err := quorum.Inspect(readOnly, "data/quorum", m)
	for range 100 { // The log is compacted a moment after the last entry.
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		m = &list{}
		err = quorum.Inspect(readOnly, "data/quorum", m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, m.entries()); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	n.stop(t)
	if err := quorum.Inspect(readOnly, "nowhere", m); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
}
