package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestRelaxMonitor(t *testing.T) {
	proc := t.TempDir()
	if err := relaxMonitor(proc); err == nil {
		t.Error("no error without threads")
	}
	pid := os.Getpid()
	for _, tid := range []int{pid - 1, pid, pid + 7, pid + 2} {
		for _, dir := range []string{fmt.Sprintf("self/task/%d", tid), fmt.Sprint(tid)} {
			if err := os.MkdirAll(filepath.Join(proc, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(proc, fmt.Sprint(tid), "timerslack_ns"), []byte("50000"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := relaxMonitor(proc); err != nil {
		t.Fatal(err)
	}
	for tid, want := range map[int]string{pid - 1: "50000", pid: "50000", pid + 7: "50000", pid + 2: "500000"} {
		got, err := os.ReadFile(filepath.Join(proc, fmt.Sprint(tid), "timerslack_ns"))
		if err != nil || string(got) != want {
			t.Errorf("thread %+d has a slack of %s ns, want %s: %v", tid-pid, got, want, err)
		}
	}
}
