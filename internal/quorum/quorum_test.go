package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// A lone voter waits for no timeout: not a tick passes until it is ready.
func TestLoneVoterLeadsAtOnce(t *testing.T) {
	disk := memfs.New()
	for _, what := range []string{"first start", "restart"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				begin := time.Now()
				n := start(t, options(disk, &list{}))
				<-n.Ready()
				if took := time.Since(begin); took != 0 {
					t.Errorf("ready after %v", took)
				}
				if got := n.Status().Leader; got != 1 {
					t.Errorf("leader %d", got)
				}
				n.stop(t)
			})
		})
	}
}

func TestDoAppliesInOrderAndSurvivesRestart(t *testing.T) {
	disk, m := memfs.New(), &list{}
	n := start(t, options(disk, m))
	<-n.Ready()
	mustAdd(t, n, "a", "b", "c")
	want := []string{"a", "b", "c"}
	if diff := cmp.Diff(want, m.entries()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	n.stop(t)
	for seed := range uint64(20) {
		again := &list{}
		n := start(t, options(disk.CrashClone(seed, 50), again))
		<-n.Ready()
		if diff := cmp.Diff(want, again.entries()); diff != "" {
			t.Errorf("after power loss (-want +got):\n%s", diff)
		}
		n.stop(t)
	}
}

func TestDoResults(t *testing.T) {
	m := &list{}
	opt := options(memfs.New(), m)
	opt.MaxEntryBytes = 10
	n := start(t, opt)
	errRefused := errors.New("refused")
	for _, test := range []struct {
		name   string
		decide func() ([]byte, error)
		want   error
	}{
		{"entry", func() ([]byte, error) { return []byte("x"), nil }, nil},
		{"nothing to do", func() ([]byte, error) { return nil, nil }, nil},
		{"error", func() ([]byte, error) { return nil, errRefused }, errRefused},
		{"error with an entry", func() ([]byte, error) { return []byte("y"), errRefused }, errRefused},
		{"too large", func() ([]byte, error) { return make([]byte, 11), nil }, quorum.ErrEntryTooLarge},
	} {
		if err := n.Do(t.Context(), test.decide); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	if diff := cmp.Diff([]string{"x"}, m.entries()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	n.stop(t)
	if err := n.add(t.Context(), "z"); !errors.Is(err, quorum.ErrStopped) {
		t.Errorf("after stop: %v", err)
	}
}

// A canceled Do either never decides, or returns once decide is done with what
// it captured.
func TestDoCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := start(t, options(memfs.New(), &list{}))
		<-n.Ready()
		entered, leave := make(chan struct{}), make(chan struct{})
		first := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			first <- n.Do(ctx, func() ([]byte, error) {
				close(entered)
				<-leave
				return []byte("first"), nil
			})
		}()
		<-entered
		second := make(chan error, 1)
		go func() {
			second <- n.Do(ctx, func() ([]byte, error) {
				t.Error("decided after it was canceled")
				return nil, nil
			})
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("second: %v", err)
		}
		select {
		case err := <-first:
			t.Errorf("returned %v while decide ran", err)
		default:
		}
		close(leave)
		if err := <-first; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
		n.stop(t)
	})
}

// Whatever decides sees every earlier decision, with and without staging.
func TestDecideSeesAllEarlierDecisions(t *testing.T) {
	staged := &stagedList{}
	plain := &list{}
	for _, test := range []struct {
		name string
		m    quorum.Machine
		seen func() []string
	}{
		{"plain", plain, plain.entries},
		{"staged", staged, staged.seen},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := start(t, options(memfs.New(), test.m))
			const callers, each = 16, 50
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						var got int
						err := n.Do(t.Context(), func() ([]byte, error) {
							got = len(test.seen())
							return fmt.Appendf(nil, "%d", got), nil
						})
						if err != nil {
							t.Errorf("Do: %v", err)
						}
					}
				})
			}
			wg.Wait()
			n.stop(t)
			for i, e := range test.seen() {
				if e != fmt.Sprint(i) {
					t.Fatalf("entry %d was decided on %s earlier ones", i, e)
				}
			}
		})
	}
}

func isNotLeader(err error) bool {
	var not *quorum.NotLeaderError
	return errors.As(err, &not)
}

// countingFS counts the syncs of files.
type countingFS struct {
	vfs.FS
	mu    sync.Mutex
	syncs int
	// onSync, if set, is called before a sync.
	onSync func()
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (f *countingFS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return countingFile{file, f}, nil
}

func (f countingFile) Sync() error {
	f.fs.mu.Lock()
	f.fs.syncs++
	onSync := f.fs.onSync
	f.fs.mu.Unlock()
	if onSync != nil {
		onSync()
	}
	return f.File.Sync()
}

func (f *countingFS) set(onSync func()) (syncs int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onSync = onSync
	return f.syncs
}

// doMany blocks the loop in a sync, lets callers queue up behind it, and
// returns how many syncs their entries took.
func doMany(t *testing.T, m quorum.Machine, callers int) int {
	t.Helper()
	disk := &countingFS{FS: memfs.New()}
	n := start(t, options(disk, m))
	<-n.Ready()
	hold := make(chan struct{})
	before := disk.set(func() { <-hold })
	var wg sync.WaitGroup
	add := func(entry string) {
		if err := n.add(t.Context(), entry); err != nil {
			t.Errorf("add: %v", err)
		}
	}
	wg.Go(func() { add("first") })
	synctest.Wait()
	for i := range callers {
		wg.Go(func() { add(fmt.Sprint(i)) })
	}
	synctest.Wait()
	close(hold)
	wg.Wait()
	after := disk.set(nil)
	n.stop(t)
	return after - before - 1
}

func TestStagedDecisionsShareASync(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		if got := doMany(t, &stagedList{}, 100); got != 1 {
			t.Errorf("100 staged decisions took %d syncs, want 1", got)
		}
		if got := doMany(t, &list{}, 100); got != 100 {
			t.Errorf("100 plain decisions took %d syncs, want 100", got)
		}
	})
}

// What a decision has seen staged must be durable before its caller learns
// anything from it, even when it has no entry of its own.
func TestReaderOfStagedStateWaitsForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &stagedList{}
		disk := &countingFS{FS: memfs.New()}
		n := start(t, options(disk, m))
		<-n.Ready()
		hold := make(chan struct{})
		disk.set(func() { <-hold })
		go func() { _ = n.add(t.Context(), "blocks the loop") }()
		synctest.Wait()
		disk.set(nil)
		hold2 := make(chan struct{})
		added, read := make(chan error, 1), make(chan error, 1)
		go func() { added <- n.add(t.Context(), "new") }()
		synctest.Wait()
		errExists := errors.New("exists")
		go func() {
			read <- n.Do(t.Context(), func() ([]byte, error) {
				if slices.Contains(m.seen(), "new") {
					return nil, errExists
				}
				return nil, nil
			})
		}()
		synctest.Wait()
		disk.set(func() { <-hold2 })
		close(hold)
		synctest.Wait()
		select {
		case err := <-read:
			t.Fatalf("read returned %v before the entry it saw was synced", err)
		default:
		}
		close(hold2)
		if err := <-read; !errors.Is(err, errExists) {
			t.Errorf("read: %v", err)
		}
		if err := <-added; err != nil {
			t.Errorf("add: %v", err)
		}
		n.stop(t)
	})
}

// Snapshots bound the log: old segments and snapshots go.
func TestSnapshotsBoundTheLog(t *testing.T) {
	disk := memfs.New()
	m := &list{}
	opt := options(disk, m)
	opt.SegmentBytes, opt.SnapshotEntries = 8<<10, 50
	n := start(t, opt)
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprintf("entry %d", i))
		mustAdd(t, n, want[i])
	}
	if s := n.Status(); s.SnapshotIndex < 950 || s.FirstIndex <= s.SnapshotIndex-50 {
		t.Errorf("status %+v", s)
	}
	n.stop(t)
	names := fileNames(t, disk)
	if len(names) > 3 {
		t.Errorf("files left: %v", names)
	}
	again := &list{}
	opt.Machine = again
	n = start(t, opt)
	<-n.Ready()
	if diff := cmp.Diff(want, again.entries()); diff != "" {
		t.Errorf("after restart (-want +got):\n%s", diff)
	}
	if again.restored != 1 {
		t.Errorf("restored %d times", again.restored)
	}
	if l := n.Status().LastIndex; again.index+10 < l || again.index > l {
		t.Errorf("the machine is at %d, and the log ends at %d", again.index, l)
	}
	n.stop(t)
}

// SnapshotBytes bounds the log when entries are few and large.
func TestSnapshotByBytes(t *testing.T) {
	m := &list{}
	opt := options(memfs.New(), m)
	opt.SnapshotBytes = 10_000
	n := start(t, opt)
	for range 20 {
		mustAdd(t, n, strings.Repeat("x", 1000))
	}
	if s := n.Status(); s.SnapshotIndex < 10 {
		t.Errorf("no snapshot: %+v", s)
	}
	n.stop(t)
}

func fileNames(t *testing.T, disk vfs.FS) []string {
	t.Helper()
	entries, err := disk.ReadDir("data/quorum")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// An entry larger than a segment gets a segment of its own size.
func TestEntryLargerThanSegment(t *testing.T) {
	disk := memfs.New()
	opt := options(disk, &list{})
	opt.SegmentBytes = 8 << 10
	n := start(t, opt)
	large := strings.Repeat("large", 10_000)
	mustAdd(t, n, "small", large, "small")
	n.stop(t)
	again := &list{}
	opt.Machine = again
	n = start(t, opt)
	<-n.Ready()
	if diff := cmp.Diff([]string{"small", large, "small"}, again.entries()); diff != "" {
		t.Errorf("after restart (-want +got):\n%s", diff)
	}
	n.stop(t)
}

func TestOpenRefusals(t *testing.T) {
	disk := memfs.New()
	n := start(t, options(disk, &list{}))
	<-n.Ready()
	n.stop(t)
	for name, change := range map[string]func(*quorum.Options){
		"another node's directory": func(o *quorum.Options) { o.NodeID = 2 },
		"negative id":              func(o *quorum.Options) { o.NodeID = -1 },
		"no voters for a new log":  func(o *quorum.Options) { o.Dir, o.Voters = "new", nil },
		"peers without a transport": func(o *quorum.Options) {
			o.Dir, o.Voters = "new2", []kafka.BrokerID{1, 2, 3}
		},
	} {
		opt := options(disk, &list{})
		change(&opt)
		if _, err := quorum.Open(opt); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

// An error of the machine ends Run and reaches whoever waits.
func TestApplyErrorIsFinal(t *testing.T) {
	errBroken := errors.New("broken")
	m := &list{gate: func(string) error { return errBroken }}
	n := start(t, options(memfs.New(), m))
	err := n.add(t.Context(), "x")
	if !errors.Is(err, errBroken) || !errors.Is(err, quorum.ErrStopped) {
		t.Errorf("Do: %v", err)
	}
	if err := <-n.ended; !errors.Is(err, errBroken) {
		t.Errorf("Run: %v", err)
	}
}

// A full disk refuses decisions, loses nothing, and is over when space is
// freed; a restart on the full disk works.
func TestFullDisk(t *testing.T) {
	disk, m := memfs.New(), &list{}
	opt := options(disk, m)
	opt.SegmentBytes, opt.SnapshotEntries = 16<<10, 1<<40
	disk.SetCapacity(40 << 10)
	n := start(t, opt)
	<-n.Ready()
	var want []string
	var full error
	for i := 0; i < 1000 && full == nil; i++ {
		e := fmt.Sprintf("%d %s", i, strings.Repeat("x", 500))
		if full = n.add(t.Context(), e); full == nil {
			want = append(want, e)
		}
	}
	if full == nil || errors.Is(full, quorum.ErrStopped) {
		t.Fatalf("on a full disk: %v", full)
	}
	n.stop(t)
	again := &list{}
	opt.Machine = again
	n = start(t, opt)
	<-n.Ready()
	disk.SetCapacity(-1)
	mustAdd(t, n, "room again")
	if diff := cmp.Diff(append(want, "room again"), again.entries()); diff != "" {
		t.Errorf("after the disk was full (-want +got):\n%s", diff)
	}
	n.stop(t)
}

func TestRunOnceAndCloseTwice(t *testing.T) {
	n := start(t, options(memfs.New(), &list{}))
	<-n.Ready()
	if err := n.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
	n.stop(t)
	if err := n.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := memfs.New().ReadDir("data"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory reads as %v", err)
	}
}
