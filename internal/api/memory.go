package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/wire"
)

// A few bytes of a request can become many in memory: an element of an array
// takes one byte on the wire, up to 160 decoded, and up to a kilobyte with the
// words of its answer. So what a request will take is measured before it is
// decoded (layout.go). Nothing larger than the budget is taken
// (queued.max.request.bytes), and what all requests that are being answered take
// together is about as much. Produce, the one that carries records, is read in
// place and has a bound of its own.
const (
	// maxElements is how many topics or partitions a Produce may have.
	maxElements = 64 << 10
	// answeredBytes is the share of a request for each of its elements, and
	// describedBytes that of a DescribeConfigs: a resource has dozens of configs.
	answeredBytes  = 1 << 10
	describedBytes = 16 << 10
	// wideBytes is the least share of a request whose answer may be about
	// everything there is, however short it is itself.
	wideBytes = 1 << 20
	// freeBytes is up to where a request takes no share: heartbeats do not wait.
	freeBytes = 16 << 10
)

// isWide says that a few bytes of a request may be answered with very many.
func isWide(key kmsg.Key) bool {
	switch key {
	case kmsg.Metadata, kmsg.DescribeConfigs, kmsg.DescribeGroups, kmsg.ListGroups, kmsg.OffsetFetch,
		kmsg.DescribeLogDirs, kmsg.DescribeProducers, kmsg.DescribeTopicPartitions, kmsg.DescribeTransactions, kmsg.ListTransactions:
		return true
	}
	return false
}

// memory is the budget for requests that are being answered: a part of a whole. One
// request may take up all of the part, and be as large as the whole allows: then it is
// alone.
type memory struct {
	part, whole int64
	left        *semaphore.Weighted
	layouts     map[int16][]field
	errors      *errorCounts // Of the answers that are encoded.
	replies     sync.Pool    // of *reply: their buffers are worth keeping.
}

func newMemory(part, whole int64) *memory {
	return &memory{part: part, whole: whole, left: semaphore.NewWeighted(part), layouts: compileLayouts()}
}

// divideMemory makes the budgets of a broker's listeners. Where there are other
// brokers, they and the clients have a part each, and neither waits for the other.
func (s *Services) divideMemory() {
	whole := s.Broker().QueuedMaxRequestBytes
	clients, brokers := config.Divide(whole)
	if s.Peers == nil {
		clients = whole
	}
	s.memory, s.others = newMemory(clients, whole), newMemory(brokers, whole)
	s.memory.errors, s.others.errors = &s.errors, &s.errors
}

// most is the largest request that is taken.
func (m *memory) most() size {
	return size{elements: int(m.whole / answeredBytes), bytes: m.whole}
}

// read decodes a request of bounded size when there is memory for it, and returns
// what gives that back. Nothing of what it decodes aliases the frame, which may be released,
// or be taken back when the connection dies, while the request is still worked on.
func (m *memory) read(ctx context.Context, w *wire.Request, req kmsg.Request) (give func(), err error) {
	req.SetVersion(w.Version)
	got, err := measure(m.layouts[w.Key], w.Body, w.Version, req.IsFlexible(), m.most())
	if errors.Is(err, errTooLarge) {
		return nil, tooLargeError(len(w.Body), got, m.most())
	}
	if err != nil {
		return nil, err
	}
	each := int64(answeredBytes)
	if kmsg.Key(w.Key) == kmsg.DescribeConfigs {
		each = describedBytes
	}
	share := got.bytes + int64(got.elements)*each
	body := w.Body
	if got.aliased {
		share += int64(len(body))
	}
	if isWide(kmsg.Key(w.Key)) {
		share = max(share, wideBytes)
	}
	give, err = m.take(ctx, min(share, m.part))
	if err != nil {
		return nil, err
	}
	if got.aliased {
		body = bytes.Clone(body)
	}
	if err := wire.Decode(func() error { return req.ReadFrom(body) }); err != nil {
		give()
		return nil, err
	}
	return give, nil
}

// take waits for a share and returns what gives it back.
func (m *memory) take(ctx context.Context, share int64) (give func(), err error) {
	if share <= freeBytes {
		return func() {}, nil
	}
	if err := m.left.Acquire(ctx, share); err != nil {
		return nil, fmt.Errorf("no memory for it: %w", err)
	}
	return func() { m.left.Release(share) }, nil
}
