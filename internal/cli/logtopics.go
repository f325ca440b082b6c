package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

const metadataDirName = "metadata"

// nameTopics gives partitions the names of their topics. The names are in the
// cluster's metadata only; where that cannot be read, ids stay.
func (a *app) nameTopics(dataDir string, all []*logPartition) {
	if len(all) == 0 {
		return
	}
	image, err := readImage(dataDir)
	if err != nil {
		a.out.warn("topics are shown by their ids, because the metadata cannot be read: %v", err)
		return
	}
	for _, p := range all {
		if t := image.TopicByID(p.id); t != nil {
			p.topic = t.Name
		}
	}
}

// readImage rebuilds the metadata of a data directory. It replays a copy in
// memory: the directory may belong to a running broker, and what opens a log
// also repairs it.
func readImage(dataDir string) (*metadata.Image, error) {
	node, err := nodeOf(dataDir)
	if err != nil {
		return nil, err
	}
	copied := memfs.New()
	if err := copyDir(copied, dataDir, metadataDirName); err != nil {
		return nil, err
	}
	m := &imageMachine{image: &metadata.Image{}}
	q, err := quorum.Open(quorum.Options{
		FS: copied, Dir: metadataDirName, NodeID: node, Voters: []kafka.BrokerID{node},
		Machine: m, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }() // Ends with ctx.
	select {
	case <-q.Ready():
		err = nil
	case err = <-done:
		done <- nil
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	<-done
	if err != nil {
		return nil, err
	}
	return m.image, q.Close()
}

// imageMachine is the metadata as a quorum's machine that decides nothing.
type imageMachine struct{ image *metadata.Image }

// Apply implements quorum.Machine.
func (m *imageMachine) Apply(_ uint64, entry []byte) error {
	records, err := metadata.DecodeRecords(entry)
	if err != nil {
		return err
	}
	m.image, _, err = m.image.Apply(records...)
	return err
}

// Snapshot implements quorum.Machine.
func (m *imageMachine) Snapshot() ([]byte, error) { return m.image.AppendSnapshot(nil), nil }

// Restore implements quorum.Machine.
func (m *imageMachine) Restore(data []byte) error {
	image, err := metadata.DecodeSnapshot(data)
	if err == nil {
		m.image = image
	}
	return err
}

// nodeOf reads which node a data directory belongs to.
func nodeOf(dataDir string) (kafka.BrokerID, error) {
	data, err := os.ReadFile(filepath.Join(dataDir, metaFileName))
	if err != nil {
		return kafka.NoBroker, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "node.id="); ok {
			n, err := strconv.ParseInt(value, 10, 32)
			return kafka.BrokerID(n), err
		}
	}
	return kafka.NoBroker, fmt.Errorf("%s has no node.id", metaFileName)
}

func copyDir(to vfs.FS, root, dir string) error {
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return err
	}
	if err := to.MkdirAll(dir); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, dir, e.Name()))
		if err != nil {
			return err
		}
		f, err := to.Open(dir+"/"+e.Name(), vfs.ReadWrite|vfs.Create)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
