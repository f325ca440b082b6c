package commitlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

var testMeta = commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"}

func openDir(t *testing.T, fsys vfs.FS) *commitlog.Dir {
	t.Helper()
	d, err := commitlog.OpenDir(fsys, commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1})
	if err != nil {
		t.Fatalf("open directory: %v", err)
	}
	return d
}

func logID(n byte) kafka.TopicIDPartition {
	return kafka.TopicIDPartition{ID: kafka.TopicID{n}, Partition: int32(n)}
}

func makeBatch(t *testing.T, timestamp int64, values ...string) record.Batch {
	t.Helper()
	builder := record.NewBuilder(record.CodecNone, 0)
	for _, v := range values {
		builder.Append(timestamp, nil, []byte(v), nil)
	}
	bytes := builder.Build()
	b, _, err := record.Next(append([]byte(nil), bytes...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAppendReadReopen(t *testing.T) {
	fsys := memfs.New()
	d := openDir(t, fsys)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	durable := make(chan kafka.Offset, 100)
	cfg := commitlog.DefaultConfig()
	cfg.SegmentBytes = 300
	l, err := d.Log(logID(1), commitlog.Options{Config: cfg, OnDurable: func(o kafka.Offset) { durable <- o }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		info, err := l.AppendAsLeader([]record.Batch{makeBatch(t, int64(i), "a", "b")}, 3, time.UnixMilli(5))
		if err != nil {
			t.Fatal(err)
		}
		if info.BaseOffset != kafka.Offset(2*i) || info.LastOffset != kafka.Offset(2*i+1) {
			t.Fatalf("append %d went to %+v", i, info)
		}
	}
	for end := kafka.Offset(0); end < 40; {
		end = <-durable
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	checkOffsets(t, l, 0, 40)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, fsys)
	if !d.WasClean() {
		t.Error("clean stop was not noticed")
	}
	l, err = d.Log(logID(1), commitlog.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if l.LogEndOffset() != 40 || l.DurableEnd() != 40 {
		t.Fatalf("log end %d, durable end %d, want 40", l.LogEndOffset(), l.DurableEnd())
	}
	checkOffsets(t, l, 0, 40)
	if info, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 99, "c")}, 4, time.UnixMilli(5)); err != nil || info.BaseOffset != 40 {
		t.Fatalf("append after reopen: %+v, %v", info, err)
	}
	checkOffsets(t, l, 0, 41)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}

// checkOffsets reads the log from every offset, in small pieces, and checks
// that nothing is missing.
func checkOffsets(t *testing.T, l *commitlog.Log, from, to kafka.Offset) {
	t.Helper()
	for start := from; start < to; start++ {
		at := start
		for at < to {
			c, err := l.Read(at, 200, to, true)
			if err != nil {
				t.Fatalf("read from %d: %v", at, err)
			}
			data, err := c.AppendTo(nil)
			c.Release()
			if err != nil || len(data) == 0 {
				t.Fatalf("read from %d of [%d, %d): %d bytes, %v", at, from, to, len(data), err)
			}
			for len(data) > 0 {
				b, rest, err := record.Next(data)
				if err != nil {
					t.Fatal(err)
				}
				if b.BaseOffset() > at || b.LastOffset() < at {
					t.Fatalf("batch [%d, %d] where %d was due", b.BaseOffset(), b.LastOffset(), at)
				}
				at, data = b.LastOffset()+1, rest
			}
			if c.NextOffset() != at {
				t.Fatalf("next offset %d, want %d", c.NextOffset(), at)
			}
		}
	}
}
