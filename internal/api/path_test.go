package api_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// stackWatch remembers who called for a kind of operation on a segment.
type stackWatch struct {
	kind errorfs.Kind

	mu    sync.Mutex
	stack []string // Functions of this module, the innermost first.
}

func (s *stackWatch) inject(op errorfs.Op) error {
	if op.Kind != s.kind || !strings.HasSuffix(op.Name, ".log") {
		return nil
	}
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	var stack []string
	for {
		f, more := frames.Next()
		if name, ours := strings.CutPrefix(f.Function, "github.com/strandline/strandline/internal/"); ours {
			stack = append(stack, name)
		}
		if !more {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stack = stack
	return nil
}

// rooms returns the rooms of a stack, the outermost first, each once in a row,
// and how many frames those of the product are.
func (s *stackWatch) rooms() (rooms []string, frames int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range slices.Backward(s.stack) {
		room := f[:strings.IndexByte(f, '.')]
		if strings.HasPrefix(room, "vfs") || strings.HasSuffix(room, "_test") {
			continue
		}
		frames++
		if len(rooms) == 0 || rooms[len(rooms)-1] != room {
			rooms = append(rooms, room)
		}
	}
	return rooms, frames
}

// TestPath: a produce gets from the socket to the file through four rooms, on the
// goroutine that read it and within few frames.
func TestPath(t *testing.T) {
	watch := &stackWatch{kind: errorfs.Write}
	w := newWorld(t)
	w.files = errorfs.Wrap(memfs.New(), watch.inject)
	w.start()
	w.createTopic("t", 1)
	c := w.connect()
	req := produceOf(9, "t", 0, batchOf("v"))
	req.Acks = 1
	c.produced(req)
	rooms, frames := watch.rooms()
	if want := []string{"wire", "api", "partition", "commitlog"}; !slices.Equal(rooms, want) || frames > 14 {
		t.Errorf("%d frames through %v, want few through %v:\n%s", frames, rooms, want, strings.Join(watch.stack, "\n"))
	}
}
