package wire_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
	"github.com/strandline/strandline/internal/wire"
)

// clientEnv makes the test binary a client of a benchmark: the client's CPU must
// not count as the broker's.
const clientEnv = "STRANDLINE_WIRE_BENCH_CLIENT"

func TestMain(m *testing.M) {
	if args := os.Getenv(clientEnv); args != "" {
		runClient(strings.Fields(args))
		return
	}
	os.Exit(m.Run())
}

// runClient sends count requests of size bytes and reads the answers, with depth
// of them under way, spaced by an interval in microseconds.
func runClient(args []string) {
	addr, numbers := args[0], make([]int, 5)
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(args[1+i])
	}
	key, count, size, depth, interval := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	c, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	slots := make(chan struct{}, depth)
	go func() {
		f := frame(int16(key), 0, 1, strings.Repeat("x", size))
		next := time.Now()
		for range count {
			slots <- struct{}{}
			if interval > 0 {
				next = next.Add(time.Duration(interval) * time.Microsecond)
				// A benchmark's pace, not a test's synchronisation.
				<-time.After(time.Until(next))
			}
			if _, err := c.Write(f); err != nil {
				panic(err)
			}
		}
	}()
	in := bufio.NewReaderSize(c, 1<<20)
	var head [4]byte
	for range count {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			panic(err)
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(head[:]))); err != nil {
			panic(err)
		}
		<-slots
	}
}

// cpu returns what this process used of a processor.
func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// load is one benchmark's traffic.
type load struct {
	key         int16
	size, depth int
	interval    time.Duration
	bytes       int64 // Of the larger direction, per request.
}

// drive runs b.N requests from a process of its own and reports this process'
// CPU.
func drive(b *testing.B, l load, api func(key int16) (wire.API, bool)) {
	listener, err := netx.TCP{}.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	limits := wire.DefaultLimits()
	s, err := wire.New(wire.Options{
		Listeners: []wire.Listener{{Name: "PLAINTEXT", Listener: listener}},
		APIs:      api, Limits: limits, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d %d %d", clientEnv,
		listener.Addr(), l.key, b.N, l.size, l.depth, l.interval.Microseconds()))
	cmd.Stderr = os.Stderr
	b.ReportAllocs()
	b.SetBytes(l.bytes)
	b.ResetTimer()
	before := cpu()
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
	used := cpu() - before
	b.StopTimer()
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
	if l.bytes >= 1024 {
		b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/float64(l.bytes>>10)/1e3, "cpu-us/KiB")
	}
	stop()
	running.Wait()
}

// one returns a table of a single API.
func one(
	handle func(ctx context.Context, r *wire.Request) wire.Response,
) func(int16) (wire.API, bool) {
	api := wire.API{Max: 3, FlexibleFrom: flexibleFrom, Quick: true, Handle: handle}
	return func(int16) (wire.API, bool) { return api, true }
}

// fixed answers with a few bytes.
type fixed struct{}

func (*fixed) Done() bool          { return true }
func (*fixed) Deadline() time.Time { return time.Time{} }
func (*fixed) Encode(w *wire.Writer) error {
	w.Bytes([]byte("an answer of some bytes"))
	return nil
}

func BenchmarkEcho(b *testing.B) {
	for _, depth := range []int{1, 5, 100} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			answer := &fixed{}
			drive(b, load{key: keyEcho, size: 1100, depth: depth},
				one(func(context.Context, *wire.Request) wire.Response { return answer }))
		})
	}
}

func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 6 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			answer := &fixed{}
			drive(b, load{key: keyEcho, size: size, depth: 5, bytes: int64(size)},
				one(func(_ context.Context, r *wire.Request) wire.Response {
					r.Release()
					return answer
				}))
		})
	}
}

// committed is a response that a ticking committer completes.
type committed struct {
	fixed
	c    *committer
	req  *wire.Request
	done atomic.Bool
}

func (r *committed) Done() bool          { return r.done.Load() }
func (r *committed) Deadline() time.Time { return r.req.Received.Add(30 * time.Second) }

type committer struct {
	mu      sync.Mutex
	waiting []*committed
}

func (c *committer) handle(_ context.Context, r *wire.Request) wire.Response {
	resp := &committed{c: c, req: r}
	r.Release()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, resp)
	return resp
}

func (c *committer) run(ctx context.Context) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	var batch []*committed
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		batch, c.waiting = c.waiting, batch[:0]
		c.mu.Unlock()
		for _, r := range batch {
			r.done.Store(true)
			r.req.Wake()
		}
	}
}

// BenchmarkCommitted is the way of acks=all: 5,000 requests a second, answered
// by rounds.
func BenchmarkCommitted(b *testing.B) {
	c := &committer{}
	go c.run(b.Context())
	l := load{key: keyEcho, size: 1100, depth: 100, interval: 200 * time.Microsecond}
	drive(b, l, one(c.handle))
}

// stored is a chunk in a file.
type stored struct {
	file   vfs.File
	length int64
}

func (s *stored) Size() int { return int(s.length) }
func (s *stored) File() (f vfs.File, position, length int64, ok bool) {
	return s.file, 0, s.length, true
}
func (s *stored) Release() {}
func (s *stored) AppendTo(dst []byte) ([]byte, error) {
	n := len(dst)
	dst = append(dst, make([]byte, s.length)...)
	_, err := s.file.ReadAt(dst[n:], 0)
	return dst, err
}

type sendChunk struct {
	fixed
	chunk *stored
}

func (s *sendChunk) Encode(w *wire.Writer) error {
	w.Bytes([]byte("header"))
	w.Chunk(s.chunk)
	w.Bytes([]byte("trailer"))
	return nil
}

func BenchmarkSendFile(b *testing.B) {
	fs, err := osfs.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	f, err := fs.Open("segment", vfs.ReadWrite|vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 8<<20), 0); err != nil {
		b.Fatal(err)
	}
	for _, kib := range []int64{1, 4, 16, 32, 64, 128, 1024, 8192} {
		size := kib << 10
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			answer := &sendChunk{chunk: &stored{f, size}}
			drive(b, load{key: keyEcho, size: 100, depth: 2, bytes: size},
				one(func(context.Context, *wire.Request) wire.Response { return answer }))
		})
	}
}
