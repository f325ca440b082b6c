package transactions

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
)

// The pauses before a marker is tried again, and how long one try may take.
const (
	firstPause  = 10 * time.Millisecond
	maxPause    = time.Second
	sendTimeout = 10 * time.Second
)

// Marker is the outcome of a transaction on its way to one partition.
type Marker struct {
	Partition        kafka.TopicPartition
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Commit           bool
	Version          int16 // Of the client's transactions.

	// A marker that was held up on its way may arrive when its transaction has ended, by
	// another try, and the next one is open, which may have the same producer epoch. So
	// brokers tell one another which decision a marker is of, and whom they took it to:
	// its partition's leader knows which decisions it has had under its leader epoch. Leader
	// epochs start over in a topic that is made anew under the same name.

	LeaderEpoch kafka.LeaderEpoch // That the sender knows of; kafka.NoLeaderEpoch if nobody says.
	TopicID     kafka.TopicID     // That the sender knows of; zero if nobody says.
	Decision    kafka.Offset      // Of the record of the decision; 0 if nobody says.
}

// SenderOptions make a Sender.
type SenderOptions struct {
	Self  kafka.BrokerID
	Image func() *metadata.Image
	// Write writes markers to partitions that this broker leads, and returns a code
	// for each when all are committed or refused.
	Write func(ctx context.Context, markers []Marker) []kafka.Code
	Peers Peers // nil on a broker that is alone.
	// Report tells the machine of a partition of __transaction_state what was written
	// of an order, and how much is left. NOT_COORDINATOR says that the partition is not
	// led here any more; after other refusals it is told again.
	Report func(partition int32, order *txn.Markers, done []kafka.TopicPartition, left int) kafka.Code
	Logger *slog.Logger
}

// Sender takes the orders of the machines on this broker and sees to it that every
// partition gets its marker, however often it takes.
//
// A goroutine of Run's looks at what is to be sent; each request to another broker,
// and each write here, has one of its own while it lasts. What was ordered meanwhile
// goes out at once: a slow partition holds up only what went out together with it, and
// that for sendTimeout at most.
type Sender struct {
	o SenderOptions

	mu     sync.Mutex
	posts  map[int32]*post
	queue  []*piece // To be looked at.
	wake   chan struct{}
	flying sync.WaitGroup // Of goroutines that Run has started.
}

// post is where the machine of one partition hands in its orders while it is led.
type post struct {
	sender    *Sender
	partition int32
	gone      atomic.Bool
}

// order is an order under way.
type order struct {
	*txn.Markers
	post *post
	mu   sync.Mutex
	left int
}

// piece is one marker of an order.
type piece struct {
	order     *order
	partition kafka.TopicPartition
	epoch     kafka.LeaderEpoch // Under which it is sent.
	topic     kafka.TopicID     // To which it is sent.
	pause     time.Duration     // Before the last try; 0 if there was none.
	notBefore time.Time
}

func (p *piece) marker() Marker {
	o := p.order
	return Marker{
		Partition: p.partition, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch,
		CoordinatorEpoch: o.CoordinatorEpoch, Commit: o.Commit, Version: o.Version,
		LeaderEpoch: p.epoch, TopicID: p.topic, Decision: o.Decision,
	}
}

// NewSender returns a Sender without orders.
func NewSender(o SenderOptions) *Sender {
	return &Sender{o: o, posts: map[int32]*post{}, wake: make(chan struct{}, 1)}
}

// Open returns where the machine of a partition hands in its orders. Those of a
// machine before it are dropped: the new one orders anew.
func (s *Sender) Open(partition int32) shard.Caller {
	p := &post{sender: s, partition: partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.posts[partition]; old != nil {
		old.gone.Store(true)
	}
	s.posts[partition] = p
	return p
}

// Close drops the orders of a partition that is not led here any more.
func (s *Sender) Close(partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.posts[partition]; old != nil {
		old.gone.Store(true)
		delete(s.posts, partition)
	}
}

// Complete implements shard.Caller: it takes an order.
func (p *post) Complete(response any) {
	markers := response.(*txn.Markers)
	if len(markers.Partitions) == 0 {
		return
	}
	o := &order{Markers: markers, post: p, left: len(markers.Partitions)}
	pieces := make([]*piece, o.left)
	for i, at := range markers.Partitions {
		pieces[i] = &piece{order: o, partition: at}
	}
	p.sender.add(pieces)
}

func (s *Sender) add(pieces []*piece) {
	s.mu.Lock()
	s.queue = append(s.queue, pieces...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	defer s.flying.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		if next := s.send(ctx, time.Now()); next > 0 {
			timer.Reset(next)
		}
	}
}

// send starts what is due, and returns after how long it is to be called again, or 0.
func (s *Sender) send(ctx context.Context, now time.Time) (next time.Duration) {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	due := map[kafka.BrokerID][]*piece{}
	image := s.o.Image()
	var deleted []*piece
	for _, p := range queue {
		wait := p.notBefore.Sub(now)
		topic := image.Topic(p.partition.Topic)
		at := topic.Partition(p.partition.Partition)
		switch {
		case p.order.post.gone.Load():
			continue
		case wait <= 0 && at == nil:
			deleted = append(deleted, p)
			continue
		case wait <= 0 && s.reaches(at.Leader):
			p.epoch, p.topic = at.LeaderEpoch, topic.ID
			due[at.Leader] = append(due[at.Leader], p)
			continue
		case wait <= 0: // It has no leader yet.
			p.putOff(now)
			wait = p.pause
		}
		s.queue = append(s.queue, p)
		if next == 0 || wait < next {
			next = wait
		}
	}
	s.mu.Unlock()
	for leader, pieces := range due {
		s.flying.Go(func() { s.try(ctx, leader, pieces) }) // Run waits for it.
	}
	if len(deleted) > 0 { // Topics that are gone have no use for markers.
		s.flying.Go(func() { s.settle(deleted, make([]kafka.Code, len(deleted))) })
	}
	return next
}

func (s *Sender) reaches(leader kafka.BrokerID) bool {
	return leader == s.o.Self || leader != kafka.NoBroker && s.o.Peers != nil
}

// putOff has the marker tried again later, each time a little more so. It reports whether
// that is as late as it gets from now on, once.
func (p *piece) putOff(now time.Time) (latest bool) {
	before := p.pause
	p.pause = min(max(2*p.pause, firstPause), maxPause)
	p.notBefore = now.Add(p.pause)
	return before < maxPause && p.pause == maxPause
}

// try sends markers to one broker.
func (s *Sender) try(ctx context.Context, leader kafka.BrokerID, pieces []*piece) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	markers := make([]Marker, len(pieces))
	for i, p := range pieces {
		markers[i] = p.marker()
	}
	if leader == s.o.Self {
		s.settle(pieces, s.o.Write(ctx, markers))
		return
	}
	s.settle(pieces, s.ask(ctx, leader, markers))
}

// ask has another broker write markers.
func (s *Sender) ask(ctx context.Context, leader kafka.BrokerID, markers []Marker) []kafka.Code {
	resp, err := s.o.Peers.Do(ctx, leader, WriteRequest(markers))
	if err != nil {
		s.o.Logger.Debug("markers not sent, they will be tried again", "broker", int32(leader), "error", err)
	}
	answer, ok := resp.(*kmsg.WriteTxnMarkersResponse)
	if err != nil || !ok {
		codes := make([]kafka.Code, len(markers))
		for i := range codes {
			codes[i] = kafka.ErrNetworkException
		}
		return codes
	}
	return CodesOf(markers, answer)
}

// settle takes in what became of markers.
func (s *Sender) settle(pieces []*piece, codes []kafka.Code) {
	now := time.Now()
	var again []*piece
	done := map[*order][]*piece{}
	for i, p := range pieces {
		switch codes[i] {
		case kafka.ErrNone:
			done[p.order] = append(done[p.order], p)
		case kafka.ErrInvalidProducerEpoch:
			// The producer has moved on in that partition, so the marker is there.
			done[p.order] = append(done[p.order], p)
			s.warn(p, codes[i], "marker not needed")
		case kafka.ErrTransactionCoordinatorFenced:
			// Another coordinator finishes what this one began.
			s.warn(p, codes[i], "marker refused: another broker coordinates the transaction")
		default:
			if p.putOff(now) {
				s.warn(p, codes[i], "marker not written, it will be tried again and again")
			}
			again = append(again, p)
		}
	}
	for o, marked := range done {
		if s.report(o, marked) {
			continue
		}
		for _, p := range marked { // To write a marker again does no harm.
			p.putOff(now)
			again = append(again, p)
		}
	}
	if len(again) > 0 {
		s.add(again)
	}
}

// report tells the machine, and returns false if it must be told again. Reports of one
// order are made one after the other, so that the one that says that nothing is left is
// the last.
func (s *Sender) report(o *order, marked []*piece) bool {
	partitions := make([]kafka.TopicPartition, len(marked))
	for i, p := range marked {
		partitions[i] = p.partition
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.left - len(partitions)
	switch s.o.Report(o.post.partition, o.Markers, partitions, left) {
	case kafka.ErrNone:
	case kafka.ErrNotCoordinator:
		o.post.gone.Store(true)
	default:
		return false
	}
	o.left = left
	return true
}

func (s *Sender) warn(p *piece, code kafka.Code, text string) {
	s.o.Logger.Warn(text, "topic", p.partition.Topic, "partition", p.partition.Partition,
		"transactional_id", p.order.ID, "reason", code.String())
}
