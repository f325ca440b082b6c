package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
	"github.com/strandline/strandline/internal/wire"
)

// segment is a file of random bytes.
type segment struct {
	vfs.File
	bytes  []byte
	chunks atomic.Int64 // Chunks not released.
}

// noFD hides a file's descriptor, as a file in memory has none.
type noFD struct{ vfs.File }

func (noFD) Fd() (uintptr, bool) { return 0, false }

func newSegment(t testing.TB, size int, descriptor bool) *segment {
	t.Helper()
	fs, err := osfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open("segment", vfs.ReadWrite|vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	s := &segment{File: f, bytes: make([]byte, size)}
	if !descriptor {
		s.File = noFD{f}
	}
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(s.bytes)
	if _, err := f.WriteAt(s.bytes, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := s.chunks.Load(); n != 0 {
			t.Errorf("%d chunks were not released exactly once", n)
		}
		_, _ = f.Close(), fs.Close()
	})
	return s
}

// chunk is a range of a segment.
type chunk struct {
	s                *segment
	position, length int
	inMemory         bool
}

func (s *segment) chunk(position, length int) *chunk {
	s.chunks.Add(1)
	return &chunk{s: s, position: position, length: length}
}

func (c *chunk) Size() int { return c.length }
func (c *chunk) Release()  { c.s.chunks.Add(-1) }
func (c *chunk) File() (f vfs.File, position, length int64, ok bool) {
	return c.s.File, int64(c.position), int64(c.length), !c.inMemory
}

func (c *chunk) AppendTo(dst []byte) ([]byte, error) {
	if c.position+c.length > len(c.s.bytes) {
		return dst, io.ErrUnexpectedEOF
	}
	return append(dst, c.s.bytes[c.position:c.position+c.length]...), nil
}

// mixture writes chunks of all kinds and sizes and returns the bytes to expect.
func (s *segment) mixture(w *wire.Writer) {
	w.Bytes([]byte("<"))
	for i, size := range mixtureSizes() {
		c := s.chunk(i*1000, size)
		c.inMemory = i%4 == 3
		w.Chunk(c)
		w.Append(func(dst []byte) []byte { return fmt.Append(dst, "|", i, "|") })
	}
	s.chunks.Add(2)
	release := func() { s.chunks.Add(-1) }
	w.File(s.File, 77, 100, release)
	w.File(s.File, 78, 300_000, release)
	w.File(s.File, 79, 0, nil)
}

func mixtureSizes() []int {
	return []int{0, 1, 1000, 5000, 16 << 10, 16<<10 + 1, 100_000, 200_000, 3_000_000, 20_000}
}

func (s *segment) wantMixture() string {
	var b strings.Builder
	b.WriteString("<")
	for i, size := range mixtureSizes() {
		b.Write(s.bytes[i*1000 : i*1000+size])
		fmt.Fprint(&b, "|", i, "|")
	}
	b.Write(s.bytes[77:177])
	b.Write(s.bytes[78:300_078])
	return b.String()
}

func TestStoredBytesAreSent(t *testing.T) {
	for _, descriptor := range []bool{true, false} {
		t.Run(fmt.Sprintf("descriptor=%t", descriptor), func(t *testing.T) {
			eachNetwork(t, func(t *testing.T, network netx.Network) {
				s := newSegment(t, 4<<20, descriptor)
				b := newBroker(t, network)
				b.write = func(w *wire.Writer) error {
					s.mixture(w)
					return nil
				}
				b.start()
				c := b.dial()
				want := s.wantMixture()
				for i := range int32(3) {
					c.send(keyPark, i, "")
					c.send(keyEcho, i, "between")
					b.next().finish()
				}
				// Only now: the answers are larger than the socket's buffers.
				for i := range int32(3) {
					if id, got := c.receive(); id != i || got != want {
						t.Fatalf("answer %d of %d bytes, want %d of %d", id, len(got), i, len(want))
					}
					c.expect(i, "between")
				}
			})
		})
	}
}

func TestStoredBytesAreReleasedWhenTheClientIsGone(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		s := newSegment(t, 4<<20, true)
		b := newBroker(t, network)
		b.write = func(w *wire.Writer) error {
			s.mixture(w)
			return nil
		}
		b.start()
		c := b.dial()
		for i := range int32(5) {
			c.send(keyPark, i, "")
		}
		answers := make([]*answer, 5)
		for i := range answers {
			answers[i] = b.next()
		}
		answers[0].finish()
		var some [1000]byte
		if _, err := io.ReadFull(c, some[:]); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for _, a := range answers {
			<-a.encoded
		}
		b.stop()
		<-b.stopped // The segment's clean-up counts.
	})
}

func TestFileThatEndsEarlyClosesTheConnection(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		s := newSegment(t, 100_000, true)
		b := newBroker(t, network)
		b.write = func(w *wire.Writer) error {
			w.Chunk(s.chunk(50_000, 60_000))
			return nil
		}
		b.start()
		c := b.dial()
		c.send(keyPark, 1, "")
		b.next().finish()
		if got, _ := io.ReadAll(c); len(got) != 8+50_000 || !bytes.HasSuffix(got, s.bytes[50_000:]) {
			t.Errorf("%d bytes", len(got))
		}
		b.stop()
		<-b.stopped
		if log := b.log.String(); !strings.Contains(log, "failed after 50000") {
			t.Errorf("log %q", log)
		}
	})
}

// unreadable fails to encode after it wrote something.
type unreadable struct {
	echoed
	s   *segment
	err error
}

func (u unreadable) Encode(w *wire.Writer) error {
	w.Bytes([]byte("some"))
	w.Chunk(u.s.chunk(0, 50_000))
	if u.err == nil {
		c := u.s.chunk(99_999, 1000) // Reads beyond the end.
		c.inMemory = true
		w.Chunk(c)
	}
	return u.err
}

func TestResponseThatCannotBeEncodedClosesTheConnection(t *testing.T) {
	for _, fail := range []error{errors.New("no such thing"), nil} {
		eachNetwork(t, func(t *testing.T, network netx.Network) {
			s := newSegment(t, 100_000, true)
			b := newBroker(t, network)
			api := b.options.APIs
			b.options.APIs = func(key int16) (wire.API, bool) {
				a, ok := api(key)
				if key == keyFailed {
					a.Quick = true
					a.Handle = func(context.Context, *wire.Request) wire.Response {
						return unreadable{s: s, err: fail}
					}
				}
				return a, ok
			}
			b.start()
			c := b.dial()
			in := append(frame(keyEcho, 0, 1, "before"), frame(keyFailed, 0, 2, "")...)
			c.write(append(in, frame(keyPark, 0, 3, "behind")...))
			c.expect(1, "before")
			c.expectClosed()
			b.stop()
			<-b.stopped
			want := "no such thing"
			if fail == nil {
				want = io.ErrUnexpectedEOF.Error()
			}
			for _, part := range []string{want, "reason=response"} {
				if log := b.log.String(); !strings.Contains(log, part) {
					t.Errorf("log %q", log)
				}
			}
		})
	}
}

func TestLargeFrames(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		b.start()
		c := b.dial()
		random := rand.NewChaCha8([32]byte{2})
		sizes := []int{
			1, 16_000, 16_384, 16_385, 40_000, 1 << 20, 70_000, 3 << 20, 10 << 20, 5, 9 << 20, 100,
		}
		bodies := make([]string, len(sizes))
		for i, size := range sizes {
			body := make([]byte, size)
			_, _ = random.Read(body)
			bodies[i] = string(body)
		}
		go func() {
			for i, body := range bodies {
				_, _ = c.Write(frame(keyEcho, 0, int32(i), body))
			}
		}()
		for i, body := range bodies {
			if id, got := c.receive(); id != int32(i) || got != body {
				t.Fatalf("answer %d has %d bytes, want %d with %d", id, len(got), i, len(body))
			}
		}
	})
}
