package quorum_test

import (
	"context"
	"testing"

	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

// BenchmarkDo is one decision after the other on the real disk: a sync each.
func BenchmarkDo(b *testing.B) {
	q := openOnDisk(b, &list{})
	entry := make([]byte, 200)
	for b.Loop() {
		if err := q.Do(b.Context(), func() ([]byte, error) { return entry, nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDoParallel has decisions share syncs.
func BenchmarkDoParallel(b *testing.B) {
	q := openOnDisk(b, &stagedList{})
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			entry := make([]byte, 200)
			if err := q.Do(b.Context(), func() ([]byte, error) { return entry, nil }); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkStart is from Open to Ready, the first time on a directory.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		openOnDisk(b, &list{})
	}
}

func openOnDisk(b *testing.B, m quorum.Machine) *quorum.Quorum {
	b.Helper()
	disk, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	q, err := quorum.Open(options(disk, m))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		_ = q.Close()
		_ = disk.Close()
	})
	<-q.Ready()
	return q
}
