package fetcher

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// TestFailuresOfAStopAreNoNews: logs are closed under the loops of a broker that stops, and nobody is to look into that.
func TestFailuresOfAStopAreNoNews(t *testing.T) {
	dir, err := commitlog.OpenDir(memfs.New(), commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close(false) }()
	id := kafka.TopicIDPartition{ID: kafka.TopicID{1}}
	p, err := partition.New(partition.Options{Topic: "t", ID: id, Self: 1},
		func(c partition.Callbacks) (*commitlog.Log, error) {
			return dir.Log(id, commitlog.Options{OnDurable: c.OnDurable, OnFailed: c.OnFailed})
		})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := New(Options{
		Self: 1, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil)), Settings: DefaultSettings,
	})
	over := make(chan struct{})
	l := newLoop(f, loopID{leader: 2})
	l.over = over
	closed := errors.New("journal closed")
	l.fail(&entry{p: p}, "first", closed)
	close(over)
	l.fail(&entry{p: p}, "second", closed)
	if got := log.String(); !strings.Contains(got, "first") || strings.Contains(got, "second") {
		t.Errorf("log: %s", got)
	}
}
