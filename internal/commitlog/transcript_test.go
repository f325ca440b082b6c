package commitlog_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

var rewrite = flag.Bool("rewrite", false, "write the golden transcripts anew")

// The disk operations of each kind of work, in order: what a reviewer of a
// change to durability wants to see.
func TestTranscript(t *testing.T) {
	disk := memfs.New()
	watched := errorfs.Wrap(disk, nil)
	watched.Record()
	var out strings.Builder
	step := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fmt.Fprintf(&out, "%s\n", name)
		for _, op := range watched.Transcript() {
			op = strings.ReplaceAll(op, commitlog.LogDir(logID(1)), "LOG")
			fmt.Fprintf(&out, "    %s\n", strings.ReplaceAll(op, "0000000000000000", "~"))
		}
		watched.Record()
	}
	journal := &commitlog.JournalModel{}
	open := func() (*commitlog.Dir, *commitlog.Log, error) {
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
		journal.Use(&o)
		d, err := commitlog.OpenDir(watched, o)
		if err != nil {
			return nil, nil, err
		}
		c := commitlog.DefaultConfig()
		c.SegmentBytes, c.IndexIntervalBytes, c.Compact = 400, 100, true
		l, err := d.Log(logID(1), commitlog.Options{Config: c})
		return d, l, err
	}
	appendOne := func(l *commitlog.Log, n int) error {
		value := fmt.Sprintf("value-%d", n)
		_, err := l.AppendAsLeader([]record.Batch{makeBatch(t, int64(n), value)}, 1, time.UnixMilli(1))
		return err
	}
	d, l, err := open()
	step("open a new directory", err)
	step("first append", appendOne(l, 0))
	step("second append", appendOne(l, 1))
	step("sync files", l.SyncFiles())
	step("checkpoint", d.Checkpoint())
	for i := range 3 {
		err = appendOne(l, 2+i)
	}
	step("three appends", err)
	step("append that rolls", appendOne(l, 5))
	step("sync files of two segments", l.SyncFiles())
	_, err = l.Read(0, 1000, 6, true)
	step("read", err)
	step("truncate across segments", l.TruncateTo(3))
	for i := range 8 {
		err = appendOne(l, 6+i)
	}
	step("eight appends", err)
	step("delete records", l.DeleteRecords(6))
	step("stop", d.Close(true))
	_, l, err = open()
	step("start after a stop", err)
	step("first append after a start", appendOne(l, 20))
	disk = disk.CrashClone(1, 100)
	watched = errorfs.Wrap(disk, nil)
	watched.Record()
	journal = &commitlog.JournalModel{}
	d, l, err = open()
	step("start after a crash", err)
	w, err := l.BeginRewrite(l.Segments()[0].BaseOffset)
	if err == nil {
		err = w.Commit(kafka.Offset(l.Segments()[1].BaseOffset), 0)
	}
	step("compaction of a segment to nothing", err)
	step("delete the log", d.Delete(logID(1)))
	d.Bury()
	step("remove its files", nil)

	const golden = "testdata/transcript.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("disk operations changed (-want +got); look at them, then run with -rewrite:\n%s", diff)
	}
}
