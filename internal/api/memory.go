package api

import (
	"context"
	"fmt"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/strandline/strandline/internal/wire"
)

// A few bytes of a request can become many in memory: an element of an array
// takes one byte on the wire, some two dozen decoded, and up to a kilobyte with
// the words of its answer. So requests are bounded three times. Produce, the one
// that carries records, is read in place and has a bound of its own; all others
// are short, have so many elements at most, and take their share of a budget
// while they are being answered.
const (
	// memoryBytes is what one request may become, and, about, what all that are
	// being answered may together.
	memoryBytes = 64 << 20
	// decodedPerByte is what a byte becomes decoded, at the worst.
	decodedPerByte = 24
	// maxBodyBytes is the longest request other than Produce.
	maxBodyBytes = memoryBytes / decodedPerByte
	// answeredPerByte is the share that a request takes for each of its bytes.
	answeredPerByte = 256
	// maxElements is how many elements the arrays of a request may have, of all
	// levels together.
	maxElements = 64 << 10
	// freeBodyBytes is up to where a request takes no share: heartbeats do not
	// wait.
	freeBodyBytes = 256
)

// memory is the budget for requests that are being answered.
type memory struct{ left *semaphore.Weighted }

func newMemory() *memory { return &memory{left: semaphore.NewWeighted(memoryBytes)} }

// take waits for a request's share and returns what gives it back.
func (m *memory) take(ctx context.Context, w *wire.Request) (give func(), err error) {
	if len(w.Body) <= freeBodyBytes {
		return func() {}, nil
	}
	share := min(int64(len(w.Body))*answeredPerByte, memoryBytes)
	if err := m.left.Acquire(ctx, share); err != nil {
		return nil, fmt.Errorf("no memory for it: %w", err)
	}
	return func() { m.left.Release(share) }, nil
}

// decode reads a request of bounded size. Nothing of it aliases the frame.
func decode(w *wire.Request, req kmsg.Request) error {
	if len(w.Body) > maxBodyBytes {
		return fmt.Errorf("it has %d bytes, and at most %d are taken: ask for less at once",
			len(w.Body), maxBodyBytes)
	}
	req.SetVersion(w.Version)
	if err := wire.Decode(func() error { return req.ReadFrom(w.Body) }); err != nil {
		return err
	}
	if len(w.Body) <= maxElements {
		return nil // An element takes a byte at least.
	}
	if n := elements(reflect.ValueOf(req).Elem()); n > maxElements {
		return fmt.Errorf("it has %d elements, and at most %d are taken: ask for less at once", n, maxElements)
	}
	return nil
}

// elements counts the elements of all arrays in a message.
func elements(v reflect.Value) int {
	n := 0
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Slice || f.Type().Elem().Kind() == reflect.Uint8 {
			continue
		}
		n += f.Len()
		if f.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for j := range f.Len() {
			n += elements(f.Index(j))
		}
	}
	return n
}
