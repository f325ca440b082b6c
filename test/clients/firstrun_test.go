package clients_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

const (
	firstRunLines = 1_000_000
	firstRunKeys  = 5000
)

// writeLines writes key:value lines whose values count up per key and over all,
// with text of varying length behind them.
func writeLines(w io.WriteCloser) error {
	buf := bufio.NewWriterSize(w, 1<<20)
	const words = "the log is the queue and the queue is the log "
	for i := range firstRunLines {
		fmt.Fprintf(buf, "user-%d:%d %s\n", i*7919%firstRunKeys, i, words[:i%len(words)])
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return w.Close()
}

// seenLine is what a consumer printed of one record.
type seenLine struct {
	member, partition int
	offset            int64
	key               string
	n                 int
}

// TestFirstRun is the product's main job: a file of a million lines is piped in
// with keys, and two members of a group of another client read it back, one of
// which is killed half way. Every line comes at least once, and lines of one key
// in their order.
func TestFirstRun(t *testing.T) {
	py := harness.Python(t, limit)
	binary := harness.Binary(t)
	b := harness.Start(t, binary, t.TempDir())
	harness.Run(t, time.Minute, ".", binary, "topic", "create", "lines", "--partitions", "6", "--brokers", b.Addr)

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	produce := exec.CommandContext(ctx, binary, "produce", "lines", "--key-separator", ":", "--brokers", b.Addr)
	in, err := produce.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- writeLines(in) }() // Ends when the pipe is full of lines or broken.
	if out, err := produce.CombinedOutput(); err != nil {
		t.Fatalf("produce: %v\n%s", err, out)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}

	lines := make(chan seenLine, 4096)
	first := member(ctx, t, 0, py, b.Addr, lines)
	member(ctx, t, 1, py, b.Addr, lines)
	check := newOrderCheck(t)
	killed := false
	for check.distinct < firstRunLines {
		select {
		case l := <-lines:
			check.add(l)
		case <-ctx.Done():
			t.Fatalf("%d of %d lines came", check.distinct, firstRunLines)
		}
		if !killed && check.distinct > firstRunLines/2 {
			killed = true
			_ = first.Process.Kill()
		}
	}
	if check.members[1] == 0 || check.members[0] == 0 {
		t.Errorf("lines per member: %v, but both must have read some", check.members)
	}
	t.Logf("%d lines, %v per member, %d seen twice after the kill", check.distinct, check.members, check.again)
}

// member starts a librdkafka consumer as a member of the group and sends what it
// prints to lines. It ends with ctx.
func member(ctx context.Context, t *testing.T, id int, py, addr string, lines chan<- seenLine) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, py, "python/member.py", addr, "readers", "lines")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // Ends with the process, which the test's end kills.
		for r := bufio.NewReader(out); ; {
			text, err := r.ReadString('\n')
			if err != nil {
				return // What a kill cut short is no line.
			}
			l := seenLine{member: id}
			if n, err := fmt.Sscan(text, &l.partition, &l.offset, &l.key, &l.n); n != 4 {
				t.Errorf("member %d printed %q: %v", id, text, err)
				return
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// orderCheck holds what members print against the file: new offsets rise within
// a member and partition, and numbers rise with the offsets of a key.
type orderCheck struct {
	t        *testing.T
	seen     []bool
	distinct int
	again    int
	members  [2]int // Lines each printed.
	offsets  map[[2]int]int64
	keys     map[string]seenLine // The furthest of each key.
}

func newOrderCheck(t *testing.T) *orderCheck {
	return &orderCheck{t: t, seen: make([]bool, firstRunLines), offsets: map[[2]int]int64{}, keys: map[string]seenLine{}}
}

func (c *orderCheck) add(l seenLine) {
	c.t.Helper()
	if want := fmt.Sprintf("user-%d", l.n*7919%firstRunKeys); l.key != want {
		c.t.Fatalf("line %d has key %q, want %q", l.n, l.key, want)
	}
	c.members[l.member]++
	at := [2]int{l.member, l.partition}
	// A member may go back to the last commit after a rebalance, but never over
	// something it has not read before.
	if before, ok := c.offsets[at]; ok && l.offset <= before && !c.seen[l.n] {
		c.t.Fatalf("member %d read offset %d of partition %d after %d", l.member, l.offset, l.partition, before)
	}
	c.offsets[at] = l.offset
	if before, ok := c.keys[l.key]; ok && (l.offset > before.offset) != (l.n > before.n) && l.n != before.n {
		c.t.Fatalf("key %s: line %d at offset %d, line %d at %d", l.key, l.n, l.offset, before.n, before.offset)
	}
	if before, ok := c.keys[l.key]; !ok || l.offset > before.offset {
		c.keys[l.key] = l
	}
	if c.seen[l.n] {
		c.again++
		return
	}
	c.seen[l.n] = true
	c.distinct++
}
