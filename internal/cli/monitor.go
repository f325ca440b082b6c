package cli

import (
	"fmt"
	"os"
	"strconv"
)

// monitorSlackNs is how much later than asked for the monitor thread may wake.
const monitorSlackNs = 500_000

// relaxMonitor has the thread with which Go's runtime watches all others wake less
// often. It sleeps 20 us at a time while anything runs, and a broker that is busy a
// third of the time spends an eighth of its CPU on that. What it does (taking the
// processor from a thread that waits for the disk, preempting after 10 ms) may come
// half a millisecond later: docs/decisions/008-monitor-thread.md.
//
// It needs CAP_SYS_NICE. Without it, or where the kernel has no such file, nothing
// changes.
func relaxMonitor(proc string) error {
	tid, err := monitorThread(proc)
	if err != nil {
		return err
	}
	err = os.WriteFile(fmt.Sprintf("%s/%d/timerslack_ns", proc, tid), strconv.AppendInt(nil, monitorSlackNs, 10), 0)
	if err != nil {
		return fmt.Errorf("relax the monitor thread: %w", err)
	}
	return nil
}

// monitorThread returns the id of the first thread that the runtime made after the
// main one.
func monitorThread(proc string) (int, error) {
	tasks, err := os.ReadDir(proc + "/self/task")
	if err != nil {
		return 0, fmt.Errorf("list threads: %w", err)
	}
	first := 0
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err == nil && tid > os.Getpid() && (first == 0 || tid < first) {
			first = tid
		}
	}
	if first == 0 {
		return 0, fmt.Errorf("no thread in %s/self/task but the main one", proc)
	}
	return first, nil
}
