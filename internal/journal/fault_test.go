package journal_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// TestEveryOperationFailsOnce lets the n-th operation that changes the journal
// fail, for every n that a workload reaches, and checks that what was
// acknowledged before is replayed and that nothing is acknowledged after.
func TestEveryOperationFailsOnce(t *testing.T) {
	reached := 0
	for n := int64(1); n <= 40; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if failOnce(t, n) {
				reached++
			}
		})
	}
	if reached < 12 { // The more records go in before the files are ready, the fewer; some 30 normally.
		t.Errorf("only %d operations failed", reached)
	}
}

// failOnce reports whether the failure came to pass.
func failOnce(t *testing.T, n int64) bool {
	t.Helper()
	mem := memfs.New()
	fsys := errorfs.Wrap(mem, nil)
	j, stop := start(t, fsys, small())
	l := openLog(t, fsys, 1)
	must(t, fsys.SyncDir("."))
	fsys.SetInjector(errorfs.Nth(n, syscall.EIO, func(o errorfs.Op) bool {
		return len(o.Name) > 8 && o.Name[:8] == "journal/" && o.Kind.Changes()
	}))
	var failure error
	for i := uint64(1); i < 1000 && failure == nil; i++ {
		must(t, l.append(j, seal(i)))
		failure = l.wait(l.end)
	}
	stop()
	if failure != nil {
		if err := j.Reset(); !errors.Is(err, syscall.EIO) {
			t.Errorf("reset after a failure: %v, but what is durable is unknown", err)
		}
	}
	l.mu.Lock()
	durable := l.durable
	l.mu.Unlock()
	if failure != nil && !errors.Is(failure, syscall.EIO) {
		t.Errorf("failed with %v", failure)
	}

	clone := mem.CrashClone(uint64(n), 0)
	must(t, clone.MkdirAll("journal"))
	recovered := openLog(t, clone, 1)
	again, err := journal.Open(clone, "journal", small())
	must(t, err)
	defer func() { must(t, again.Close()) }()
	must(t, again.Replay(recovered.replay))
	got := recovered.content(t)
	if len(got) < int(durable) {
		t.Fatalf("%d records found, %d were acknowledged", len(got), durable)
	}
	for i, v := range got {
		if v != seal(uint64(i+1)) {
			t.Fatalf("record %d is %#x", i, v)
		}
	}
	return failure != nil
}
