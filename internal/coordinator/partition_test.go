package coordinator_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

var (
	errNotLeader = errors.New("not the leader")
	errDiskFull  = errors.New("disk full")
	// errUnverified refuses records of a transaction that come without its guard.
	errUnverified = errors.New("not verified")
)

// fakePartition is a partition in memory whose high watermark the test moves.
type fakePartition struct {
	mu            sync.Mutex
	log           [][]byte // Batches.
	start, end    kafka.Offset
	highWatermark kafka.Offset
	sync          bool // The high watermark follows the end at once.
	deposed       bool
	appendErr     error
	readErr       error
	deny          error // What comes of Confirm.
	inDoubt       bool
	asked         int
	waiter        coordinator.Waker
	target        kafka.Offset
	appends       int
}

func (p *fakePartition) Append(bs []record.Batch, _ time.Time) (kafka.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deposed {
		return 0, errNotLeader
	}
	if p.appendErr != nil {
		return 0, p.appendErr
	}
	p.appends++
	for _, b := range bs {
		b.Stamp(p.end, 1)
		p.log = append(p.log, append([]byte(nil), b.Bytes()...))
		p.end = b.LastOffset() + 1
	}
	if p.sync {
		p.raiseLocked(p.end)
	}
	return p.end - 1, nil
}

// AppendTxn wants the guard to be the partition itself.
func (p *fakePartition) AppendTxn(bs []record.Batch, guard any, now time.Time) (kafka.Offset, error) {
	if guard != p {
		return 0, errUnverified
	}
	for _, b := range bs {
		if !b.IsTransactional() {
			return 0, errUnverified
		}
	}
	return p.Append(bs, now)
}

func (p *fakePartition) AppendMarker(_ kafka.LeaderEpoch, m commitlog.Marker, now time.Time) (kafka.Offset, error) {
	data := record.NewBuilder(record.CodecNone, 0).BuildEndMarker(
		record.MarkedProducer{ID: m.ProducerID, Epoch: m.ProducerEpoch},
		record.EndMarker{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}, now.UnixMilli())
	b, _, err := record.Next(data)
	if err != nil {
		return 0, err
	}
	return p.Append([]record.Batch{b}, now)
}

func (p *fakePartition) Read(dst []byte, from kafka.Offset, maxBytes int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr != nil {
		return dst, p.readErr
	}
	n := len(dst)
	for _, data := range p.log {
		b, _, err := record.Next(data)
		if err != nil {
			return dst, err
		}
		if b.LastOffset() < from || b.LastOffset() >= p.highWatermark {
			continue
		}
		if len(dst) > n && len(dst)-n+len(data) > maxBytes {
			break
		}
		dst = append(dst, data...)
	}
	return dst, nil
}

func (p *fakePartition) Ends() (kafka.Offset, kafka.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start, p.end
}

func (p *fakePartition) HighWatermark() (kafka.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deposed {
		return 0, errNotLeader
	}
	return p.highWatermark, nil
}

func (p *fakePartition) Confirm() func(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return func(ctx context.Context) error {
		p.mu.Lock()
		deny := p.deny
		p.mu.Unlock()
		if errors.Is(deny, context.DeadlineExceeded) {
			<-ctx.Done()
			return ctx.Err()
		}
		return deny
	}
}

func (p *fakePartition) InDoubt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inDoubt
}

func (p *fakePartition) Wait(target kafka.Offset, w coordinator.Waker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.highWatermark >= target {
		return false
	}
	p.waiter, p.target = w, target
	return true
}

// commit makes everything durable.
func (p *fakePartition) commit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raiseLocked(p.end)
}

// raiseLocked wakes under the lock, as a real partition does.
func (p *fakePartition) raiseLocked(to kafka.Offset) {
	p.highWatermark = to
	if p.waiter != nil && to >= p.target {
		w := p.waiter
		p.waiter = nil
		w.Wake()
	}
}

// depose takes the leadership away.
func (p *fakePartition) depose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deposed = true
	if w := p.waiter; w != nil {
		p.waiter = nil
		w.Wake()
	}
}

func (p *fakePartition) set(change func(p *fakePartition)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}
