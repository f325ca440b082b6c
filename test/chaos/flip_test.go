package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// ruin is the data directory that a broker left when it was killed, and what it
// had acknowledged.
type ruin struct {
	t      *testing.T
	binary string
	dir    string
	acked  map[string]map[place]string // By topic.
}

// flipArgs make the checkpoint come early, so that its files have something in
// them, and keep the number of group partitions small.
func flipArgs() []string {
	return []string{
		"--set", "log.flush.offset.checkpoint.interval.ms=100", "--set", "offsets.topic.num.partitions=2",
	}
}

// newRuin kills a broker twice, so that logs have two leader epochs, and both
// checkpoints and journal have something to say.
func newRuin(t *testing.T) *ruin {
	t.Helper()
	r := &ruin{t: t, binary: harness.Binary(t), dir: t.TempDir(), acked: map[string]map[place]string{}}
	b := harness.Start(t, r.binary, r.dir, flipArgs()...)
	r.produce(b.Addr, "first", 30)
	r.produce(b.Addr, "second", 30)
	r.awaitCheckpoint()
	b.Kill()
	b.Restart()
	r.produce(b.Addr, "first", 30)
	r.awaitCheckpoint()
	r.awaitCheckpoint()
	eventually(t, "there is no journal file", func() bool { // It is made beside the first appends.
		names, err := filepath.Glob(filepath.Join(r.dir, "journal", "*.journal"))
		return err == nil && len(names) > 0
	})
	r.produce(b.Addr, "first", 10)
	r.produce(b.Addr, "third", 20)
	b.Kill()
	return r
}

// produce writes records to two partitions, one at a time: each has its own frame.
func (r *ruin) produce(addr, topic string, n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	if r.acked[topic] == nil {
		r.acked[topic] = map[place]string{}
		if _, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, topic); err != nil {
			r.t.Fatal(err)
		}
	}
	for i := range n {
		value := fmt.Sprint(topic, "-", len(r.acked[topic]), strings.Repeat(".", 40*i))
		record, err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte(value)}).First()
		if err != nil {
			r.t.Fatal(err)
		}
		r.acked[topic][place{record.Partition, record.Offset}] = value
	}
}

// awaitCheckpoint waits until one of the checkpoint files is another.
func (r *ruin) awaitCheckpoint() {
	r.t.Helper()
	read := func() string {
		one, _ := os.ReadFile(filepath.Join(r.dir, "checkpoint-0"))
		two, _ := os.ReadFile(filepath.Join(r.dir, "checkpoint-1"))
		return string(one) + string(two)
	}
	before, end := read(), time.Now().Add(10*time.Second)
	for read() == before {
		if time.Now().After(end) {
			return // Nothing has changed since the last one.
		}
		<-time.After(5 * time.Millisecond)
	}
}

// flipped is a bit of a file to flip.
type flipped struct {
	name     string
	position int64
}

// maxOfKind bounds how many files of a kind are flipped.
const maxOfKind = 4

// table returns which bits of which files are flipped: those of every header, and
// some of what is behind it, as far as the file was ever written.
func (r *ruin) table() []flipped {
	r.t.Helper()
	var all []flipped
	kinds := map[string]int{}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.dir, path)
		if err != nil {
			return err
		}
		kind := kindOf(name)
		if kind == "" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		used := int64(len(bytes.TrimRight(data, "\x00")))
		if used == 0 {
			return nil
		}
		positions := map[int64]bool{}
		for _, at := range []int64{0, 5, 13, 26, used / 2, used - 1} {
			positions[min(at, used-1)] = true
		}
		if kind == "quorum" { // The newest record: what follows the last frame's header.
			for at := used - 60; at < used; at += 7 {
				positions[max(at, 0)] = true
			}
		}
		if kind == "journal" {
			for _, at := range []int64{4096, 4104, 4116, 4128, 4200, used - used%4096 + 16} {
				positions[min(at, used-1)] = true
			}
		}
		if kinds[kind]++; kinds[kind] > maxOfKind {
			return nil
		}
		for _, at := range slices.Sorted(maps.Keys(positions)) {
			all = append(all, flipped{name, at})
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, kind := range []string{"journal", "epochs", "quorum", "checkpoint", "meta"} {
		if kinds[kind] == 0 {
			r.t.Errorf("the directory has no file of kind %s", kind)
		}
	}
	return all
}

// kindOf says what a file is for, or "" for segments and their indexes, which the
// tests of the log itself flip.
func kindOf(name string) string {
	switch top, _, _ := strings.Cut(name, string(filepath.Separator)); {
	case top == "journal":
		return "journal"
	case filepath.Base(name) == "leader-epoch-checkpoint":
		return "epochs"
	case top == "metadata":
		return "quorum"
	case strings.HasPrefix(top, "checkpoint-"):
		return "checkpoint"
	case top == "meta.properties":
		return "meta"
	}
	return ""
}

// TestFlippedBits: whichever bit of a killed broker's own files the disk changes,
// the broker starts, or says in a sentence which file is damaged; and whatever it
// had acknowledged is there, or is reported and refused to readers.
func TestFlippedBits(t *testing.T) {
	r := newRuin(t)
	started, refused := map[string]int{}, map[string]int{}
	for _, f := range r.table() {
		t.Run(fmt.Sprintf("%s@%d", f.name, f.position), func(t *testing.T) {
			c := &ruin{t: t, binary: r.binary, dir: t.TempDir(), acked: r.acked}
			copySparse(t, r.dir, c.dir)
			c.flip(f)
			b := harness.Prepare(t, c.binary, c.dir, flipArgs()...)
			if !c.serves(b, b.TryRestart()) {
				c.checkRefusal(b, f)
				refused[kindOf(f.name)]++
				return
			}
			started[kindOf(f.name)]++
			c.checkRecords(b)
			b.Kill()
			if !c.serves(b, b.TryRestart()) {
				t.Fatalf("the next start is refused:\n%s", b.Log())
			}
			c.checkRecords(b)
		})
	}
	t.Logf("started: %v, refused: %v", started, refused)
	if refused["quorum"] < 10 {
		t.Errorf("%d flips of the metadata were refused: nothing can mend those", refused["quorum"])
	}
}

// serves reports whether a broker that took a connection answers requests, or ends.
func (r *ruin) serves(b *harness.Broker, err error) bool {
	r.t.Helper()
	if err != nil {
		return false
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.AlwaysRetryEOF())
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && !b.Ended(); {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		err := cl.Ping(ctx)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

func (r *ruin) flip(f flipped) {
	r.t.Helper()
	file, err := os.OpenFile(filepath.Join(r.dir, f.name), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	var b [1]byte
	_, err = file.ReadAt(b[:], f.position)
	b[0] ^= 0x04
	_, writeErr := file.WriteAt(b[:], f.position)
	if err := errors.Join(err, writeErr, file.Close()); err != nil {
		r.t.Fatal(err)
	}
}

// checkRefusal: the process has ended, and its last line names the file.
func (r *ruin) checkRefusal(b *harness.Broker, f flipped) {
	r.t.Helper()
	if !b.Ended() {
		r.t.Errorf("the broker neither serves nor ends:\n%s", b.Log())
		return
	}
	log := b.Log()
	at := strings.Index(log, "error: ")
	if at < 0 || !strings.Contains(log[at:], filepath.Base(f.name)) || strings.Contains(log, "panic") {
		r.t.Errorf("the refusal does not name %s:\n%s", f.name, log)
	}
}

// checkRecords: every acknowledged record is there, or its partition is reported
// and refuses to be read.
func (r *ruin) checkRecords(b *harness.Broker) {
	r.t.Helper()
	for topic, acked := range r.acked {
		found, failed := r.read(b.Addr, topic)
		for p, value := range acked {
			got, ok := found[p]
			switch {
			case ok && got == value:
			case ok:
				r.t.Errorf("%s %d/%d: another record is there", topic, p.partition, p.offset)
			case failed[p.partition] == nil:
				r.t.Errorf("%s %d/%d: an acknowledged record is missing, and nothing says so", topic, p.partition, p.offset)
			case !strings.Contains(b.Log(), "corrupt"):
				r.t.Errorf("%s %d/%d: not in the log: %v", topic, p.partition, p.offset, failed[p.partition])
			}
		}
	}
}

// read reads a topic's partitions to their ends, or up to an error of each.
func (r *ruin) read(addr, topic string) (found map[place]string, failed map[int32]error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		r.t.Errorf("%s: %v", topic, err)
		return nil, nil
	}
	found, failed = map[place]string{}, map[int32]error{}
	open := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			open[o.Partition] = o.Offset
		}
	})
	for len(open) > 0 && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, p int32, err error) {
			failed[p] = err
			delete(open, p)
		})
		for record := range fetches.RecordsAll() {
			found[place{record.Partition, record.Offset}] = string(record.Value)
			if record.Offset+1 >= open[record.Partition] {
				delete(open, record.Partition)
			}
		}
	}
	for p := range open {
		if failed[p] == nil {
			r.t.Errorf("%s-%d was not read to its end in time", topic, p)
		}
	}
	return found, failed
}

// copySparse copies a directory and leaves out what is zero: the files of a journal
// are large and mostly empty.
func copySparse(t *testing.T, from, to string) {
	t.Helper()
	const block = 64 << 10
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(to, name), 0o755))
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(filepath.Join(to, name))
		if err != nil {
			return err
		}
		defer out.Close()
		buf, zero, size := make([]byte, block), make([]byte, block), int64(0)
		for {
			n, err := io.ReadFull(in, buf)
			if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
				if _, err := out.WriteAt(buf[:n], size); err != nil {
					return err
				}
			}
			size += int64(n)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return out.Truncate(size)
			}
			if err != nil {
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
