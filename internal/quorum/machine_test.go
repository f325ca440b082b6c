package quorum_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
)

// list is a machine: the entries applied, in order.
type list struct {
	mu       sync.Mutex
	applied  []string
	restored int
	index    uint64 // Of what was applied or restored last.
	// gate, if set, is called by Apply before anything else.
	gate func(entry string) error
}

func (l *list) Apply(index uint64, entry []byte) error {
	if l.gate != nil {
		if err := l.gate(string(entry)); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if index <= l.index {
		return fmt.Errorf("entry %d comes after %d", index, l.index)
	}
	l.index = index
	l.applied = append(l.applied, string(entry))
	return nil
}

func (l *list) Snapshot() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []byte
	for _, s := range l.applied {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return out, nil
}

func (l *list) Restore(index uint64, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied, l.index = nil, index
	l.restored++
	for len(data) > 0 {
		n, k := binary.Uvarint(data)
		if k <= 0 || n > uint64(len(data)-k) {
			return errors.New("bad snapshot")
		}
		l.applied = append(l.applied, string(data[k:k+int(n)]))
		data = data[k+int(n):]
	}
	return nil
}

func (l *list) entries() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.applied)
}

// stagedList is a list that stages: decisions see staged.
type stagedList struct {
	list
	staged   []string
	unstaged int
}

func (l *stagedList) Stage(entry []byte) error {
	l.staged = append(l.staged, string(entry))
	return nil
}

func (l *stagedList) Unstage() {
	l.unstaged++
	l.staged = nil
}

func (l *stagedList) Apply(index uint64, entry []byte) error {
	if len(l.staged) > 0 {
		if l.staged[0] != string(entry) {
			return errors.New("applied " + string(entry) + ", staged " + l.staged[0])
		}
		l.staged = l.staged[1:]
	}
	return l.list.Apply(index, entry)
}

// seen is what a decision has to go by.
func (l *stagedList) seen() []string { return append(l.entries(), l.staged...) }

// options of a lone voter with small files.
func options(fs vfs.FS, m quorum.Machine) quorum.Options {
	return quorum.Options{
		FS: fs, Dir: "data/quorum", NodeID: 1, Voters: []kafka.BrokerID{1}, Machine: m,
	}
}

// node is a quorum that runs.
type node struct {
	*quorum.Quorum
	cancel context.CancelFunc
	ended  chan error
}

// start opens and runs a quorum. The test stops it, or its end does.
func start(t *testing.T, opt quorum.Options) *node {
	t.Helper()
	q, err := quorum.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, q)
}

// run runs a quorum.
func run(t *testing.T, q *quorum.Quorum) *node {
	ctx, cancel := context.WithCancel(t.Context())
	n := &node{q, cancel, make(chan error, 1)}
	// Ends with ctx; stop waits for it.
	go func() { n.ended <- q.Run(ctx) }()
	t.Cleanup(func() { cancel(); _ = q.Close() })
	return n
}

// futurePreamble begins a file of format version 9.
func futurePreamble(name string) []byte {
	b := []byte("strQlog\n\x09\x00\x00\x00")
	if strings.HasPrefix(name, "snapshot") {
		b = []byte("strQsnp\n\x09\x00\x00\x00")
	}
	if name == "stopped" {
		b = []byte("strQstp\n\x09\x00\x00\x00")
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// stop ends a node that nothing failed on.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.cancel()
	if err := <-n.ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// add decides one entry without looking.
func (n *node) add(ctx context.Context, entry string) error {
	return n.Do(ctx, func() ([]byte, error) { return []byte(entry), nil })
}

func mustAdd(t *testing.T, n *node, entries ...string) {
	t.Helper()
	for _, e := range entries {
		if err := n.add(t.Context(), e); err != nil {
			t.Fatalf("add %q: %v", e, err)
		}
	}
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
