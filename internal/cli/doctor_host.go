package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sys/unix"
)

// The bounds at which doctor speaks up.
const (
	fullDisk      = 0.05 // Share of bytes free: a problem below.
	fillingDisk   = 0.15 // A warning below.
	futureRecords = time.Hour
	goodOpenFiles = 10_000
	usedOpenFiles = 0.8 // Share of the limit in use: a warning above.
)

// checkDisks asks brokers how full their disks are.
func (d *doctor) checkDisks(ctx context.Context, adm *kadm.Client) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	all, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		d.say(statusWarning, "disk", "how full the disks are is not known: "+d.explain(err).message, "")
	}
	for _, dir := range all.Sorted() {
		where := fmt.Sprintf("broker %d, %s", dir.Broker, dir.Dir)
		switch {
		case dir.Err != nil:
			d.say(statusProblem, "disk", fmt.Sprintf("%s: %v", where, dir.Err),
				"The directory is offline: see the broker's log, and restart it when the disk is sound.")
		case dir.TotalBytes > 0:
			d.sayFree(where, dir.UsableBytes, dir.TotalBytes)
		}
	}
}

func (d *doctor) sayFree(where string, free, total int64) {
	message := fmt.Sprintf("%s: %s of %s free", where, byteSize(free), byteSize(total))
	switch share := float64(free) / float64(total); {
	case share < fullDisk:
		d.say(statusProblem, "disk", message,
			"Make room now: lower retention.ms or retention.bytes of large topics, delete topics, or "+
				"grow the disk.")
	case share < fillingDisk:
		d.say(statusWarning, "disk", message,
			"Lower retention.ms or retention.bytes of large topics, or grow the disk.")
	default:
		d.ok("disk", "%s", message)
	}
}

// checkRecordTimes looks for records from the future: retention by time does
// not remove them, and a clock somewhere is wrong.
func (d *doctor) checkRecordTimes(ctx context.Context, adm *kadm.Client) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	limit := d.now().Add(futureRecords)
	late, err := adm.ListOffsetsAfterMilli(ctx, limit.UnixMilli())
	if err != nil {
		return // An old broker, or one that said why it fails in another check.
	}
	var found []string
	late.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Timestamp > limit.UnixMilli() {
			found = append(found, fmt.Sprintf("%s-%d at offset %d (%s)", o.Topic, o.Partition, o.Offset,
				timestamp(time.UnixMilli(o.Timestamp))))
		}
	})
	if len(found) == 0 {
		d.ok("time", "no record is from the future")
		return
	}
	slices.Sort(found)
	d.say(statusWarning, "time", "records from the future: "+some(found),
		"Look at the producers' clocks, or whether they send seconds or microseconds for "+
			"milliseconds. retention.ms keeps such records too long.")
}

// checkClock asks the kernel whether somebody keeps this machine's clock right.
func (d *doctor) checkClock() {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		d.say(statusNote, "time", "whether this machine's clock is kept right is not known", "")
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		d.say(statusWarning, "time", "nothing keeps this machine's clock right",
			"Run chrony, ntpd or systemd-timesyncd: timestamps and retention go by the clock.")
	default:
		d.ok("time", "this machine's clock is kept right")
	}
}

// checkProcess looks at the process that listens on a port of this machine.
func (d *doctor) checkProcess(port string) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return
	}
	pid := listener(uint16(n))
	if pid == "" {
		d.say(statusNote, "files",
			"the broker's limit of open files is not known: its process cannot be seen from here",
			"Run doctor as the broker's user, on its machine.")
		return
	}
	limit, ok := openFilesLimit(pid)
	open, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	if !ok || err != nil {
		return
	}
	message := fmt.Sprintf("the broker (process %s) has %s open of at most %s", pid,
		plural(len(open), "file"), thousands(limit))
	switch {
	case float64(len(open)) > usedOpenFiles*float64(limit):
		d.say(statusProblem, "files", message,
			"Raise the limit before it is reached: LimitNOFILE= in systemd, or ulimit -n.")
	case limit < goodOpenFiles:
		d.say(statusWarning, "files", message,
			"Each partition and each connection needs some. Raise it: LimitNOFILE= in systemd, or ulimit "+
				"-n.")
	default:
		d.ok("files", "%s", message)
	}
}

// openFilesLimit reads the soft limit of a process.
func openFilesLimit(pid string) (int64, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "limits"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			fields := strings.Fields(rest)
			n, err := strconv.ParseInt(fields[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// listener finds the process that listens on a port, or "".
func listener(port uint16) string {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(inodes) == 0 {
		return ""
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && inodes[target] {
			return strings.Split(link, "/")[2]
		}
	}
	return ""
}
