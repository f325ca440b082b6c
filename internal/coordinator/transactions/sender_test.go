package transactions_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
)

// world is a broker 1, which sends markers, in a cluster that the test makes up: topic
// t has a partition for each of the leaders given.
type world struct {
	*transactions.Sender
	image atomic.Pointer[metadata.Image]
	log   logtest.Log

	mu      sync.Mutex
	codes   map[kafka.TopicPartition][]kafka.Code // Of the next tries; none after those.
	tries   map[kafka.TopicPartition]int
	asked   map[kafka.BrokerID]int // Requests to other brokers.
	down    bool
	reports []report
	refused kafka.Code // Of all reports from now on.
	markers []transactions.Marker
}

type report struct {
	id   string
	done []kafka.TopicPartition
	left int
}

// epochNow is the leader epoch of all partitions.
const epochNow kafka.LeaderEpoch = 6

func at(n int32) kafka.TopicPartition { return kafka.TopicPartition{Topic: "t", Partition: n} }

// lead makes an image in which the partitions of t have these leaders.
func (w *world) lead(t *testing.T, leaders ...kafka.BrokerID) {
	t.Helper()
	topic := &metadata.TopicCreated{Name: "t", ID: kafka.TopicID{1}}
	for _, leader := range leaders {
		p := metadata.Partition{Leader: leader, LeaderEpoch: epochNow, Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1, 2}}
		topic.Partitions = append(topic.Partitions, p)
	}
	records := []metadata.Record{&metadata.ClusterRecord{ClusterID: "cluster", Level: 1}}
	e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
	for id := kafka.BrokerID(1); id <= 2; id++ {
		records = append(records, &metadata.BrokerRecord{Broker: metadata.Broker{
			ID: id, Epoch: kafka.BrokerEpoch(id), Directories: [][16]byte{{byte(id)}}, Endpoint: e,
			Endpoints: []metadata.Endpoint{e},
		}})
	}
	image, _, err := (&metadata.Image{}).Apply(append(records, topic)...)
	if err != nil {
		t.Fatal(err)
	}
	w.image.Store(image)
}

// code is the outcome of the next try.
func (w *world) code(at kafka.TopicPartition) kafka.Code {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[at]++
	if len(w.codes[at]) == 0 {
		return kafka.ErrNone
	}
	code := w.codes[at][0]
	w.codes[at] = w.codes[at][1:]
	return code
}

func (w *world) write(_ context.Context, markers []transactions.Marker) []kafka.Code {
	codes := make([]kafka.Code, len(markers))
	for i, m := range markers {
		codes[i] = w.code(m.Partition)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.markers = append(w.markers, markers...)
	return codes
}

// Do implements transactions.Peers.
func (w *world) Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	w.mu.Lock()
	w.asked[to]++
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, errors.New("nobody is there")
	}
	r := req.(*kmsg.WriteTxnMarkersRequest)
	return transactions.WriteResponse(r, w.write(ctx, transactions.MarkersOf(r))), nil
}

func (w *world) report(partition int32, order *txn.Markers, done []kafka.TopicPartition, left int) kafka.Code {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, report{order.ID, done, left})
	return w.refused
}

// left returns how much the last report of an order says is left, or -1.
func (w *world) left(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := -1
	for _, r := range w.reports {
		if r.id == id {
			left = r.left
		}
	}
	return left
}

// inBubble runs fn with a sender that runs.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			codes: map[kafka.TopicPartition][]kafka.Code{}, tries: map[kafka.TopicPartition]int{},
			asked: map[kafka.BrokerID]int{},
		}
		w.Sender = transactions.NewSender(transactions.SenderOptions{
			Self: 1, Image: w.image.Load, Write: w.write, Peers: w, Report: w.report,
			Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		})
		w.lead(t, 1, 2, kafka.NoBroker)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }() // Ended below.
		fn(t, w)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func order(id string, partitions ...kafka.TopicPartition) *txn.Markers {
	return &txn.Markers{
		ID: id, ProducerID: 7, ProducerEpoch: 1, Commit: true, Version: 2, Decision: 44, Partitions: partitions,
	}
}

// TestSends: each partition's leader gets its marker, here or elsewhere, and the
// machine hears of it.
func TestSends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Open(0).Complete(order("x", at(0), at(1)))
		synctest.Wait()
		if w.left("x") != 0 || w.tries[at(0)] != 1 || w.tries[at(1)] != 1 || w.asked[2] != 1 {
			t.Errorf("left %d, tries %v, asked %v", w.left("x"), w.tries, w.asked)
		}
		for _, m := range w.markers {
			if m.Decision != 44 || m.LeaderEpoch != epochNow {
				t.Errorf("decision %d goes to the leader of epoch %d", m.Decision, m.LeaderEpoch)
			}
		}
		w.Open(0).Complete(order("nothing"))
		synctest.Wait()
		if w.left("nothing") != -1 {
			t.Error("an order of nothing was carried out")
		}
	})
}

// TestTriesAgain: what fails is tried until it does not, each time after a longer
// pause, and the others do not wait for it. A line of the log says so once.
func TestTriesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.codes[at(0)] = slices.Repeat([]kafka.Code{kafka.ErrNotLeaderOrFollower}, 10)
		w.down = true
		w.Open(0).Complete(order("x", at(0), at(1), at(2)))
		w.Open(1).Complete(order("y", at(0)))
		synctest.Wait()
		<-time.After(30 * time.Second) // In the bubble's time.
		w.mu.Lock()
		tries, asked := w.tries[at(0)], w.asked[2]
		w.down = false
		w.mu.Unlock()
		if w.left("y") != 0 || w.left("x") != 2 {
			t.Errorf("left %d and %d", w.left("y"), w.left("x"))
		}
		if tries > 13 || asked < 20 || asked > 45 {
			t.Errorf("%d tries here and %d there in 30 s", tries, asked)
		}
		if n := len(w.log.With("marker not written")); n == 0 || n > 3 {
			t.Errorf("%d lines of 3 markers", n)
		}
		w.lead(t, 1, 2, 2)
		<-time.After(2 * time.Second)
		if w.left("x") != 0 {
			t.Errorf("left %d", w.left("x"))
		}
	})
}

// TestNotNeeded: a partition that is gone, or whose producer has moved on, needs no
// marker.
func TestNotNeeded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.codes[at(0)] = []kafka.Code{kafka.ErrInvalidProducerEpoch}
		gone := kafka.TopicPartition{Topic: "gone", Partition: 0}
		w.Open(0).Complete(order("x", at(0), at(9), gone))
		synctest.Wait()
		if w.left("x") != 0 || w.tries[gone] != 0 {
			t.Errorf("left %d, tries %v", w.left("x"), w.tries)
		}
	})
}

// TestGivesUp: orders of a machine that is not here any more are dropped, and so is
// what another coordinator has taken over.
func TestGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.codes[at(0)] = []kafka.Code{kafka.ErrTransactionCoordinatorFenced}
		w.Open(0).Complete(order("fenced", at(0)))
		post := w.Open(1)
		post.Complete(order("closed", at(2)))
		replaced := w.Open(2)
		replaced.Complete(order("replaced", at(2)))
		synctest.Wait()
		w.Close(1)
		w.Open(2).Complete(order("next", at(2)))
		w.lead(t, 1, 2, 1)
		<-time.After(2 * time.Second)
		if w.left("fenced") != -1 || w.left("closed") != -1 || w.left("replaced") != -1 || w.left("next") != 0 {
			t.Errorf("reports %v", w.reports)
		}
		w.mu.Lock()
		w.refused = kafka.ErrNotCoordinator
		w.codes[at(1)] = []kafka.Code{kafka.ErrUnknownServerError}
		w.mu.Unlock()
		w.Open(3).Complete(order("lost", at(0), at(1)))
		<-time.After(5 * time.Second)
		if w.left("lost") != 1 || w.tries[at(1)] != 1 {
			t.Errorf("left %d, tries %v", w.left("lost"), w.tries)
		}
	})
}

// TestReportsAgain: a machine that is too busy to hear a report hears it later.
func TestReportsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.refused = kafka.ErrCoordinatorLoadInProgress
		w.Open(0).Complete(order("x", at(0)))
		synctest.Wait()
		w.mu.Lock()
		w.refused, w.reports = kafka.ErrNone, nil
		w.mu.Unlock()
		<-time.After(time.Second)
		if w.left("x") != 0 {
			t.Error("the machine never heard that the marker is written")
		}
	})
}

// TestMarkerMessages: markers survive the way to another broker and back.
func TestMarkerMessages(t *testing.T) {
	markers := []transactions.Marker{
		{Partition: at(0), ProducerID: 1, ProducerEpoch: 2, CoordinatorEpoch: 3, Commit: true, Version: 2, LeaderEpoch: 5, Decision: 1 << 40},
		{Partition: at(1), ProducerID: 1, ProducerEpoch: 2, CoordinatorEpoch: 3, Commit: true, Version: 2, LeaderEpoch: 7, TopicID: kafka.TopicID{1}, Decision: 1 << 40},
		{Partition: kafka.TopicPartition{Topic: "u"}, ProducerID: 1, ProducerEpoch: 2, CoordinatorEpoch: 3, Commit: true, Version: 2, TopicID: kafka.TopicID{2}, Decision: 1 << 40},
		{Partition: at(0), ProducerID: 9, ProducerEpoch: 2, CoordinatorEpoch: 3, LeaderEpoch: kafka.NoLeaderEpoch},
		{Partition: at(1), ProducerID: 9, ProducerEpoch: 2, CoordinatorEpoch: 3, Decision: 4},
	}
	req := transactions.WriteRequest(markers)
	if len(req.Markers) != 3 || len(req.Markers[0].Topics) != 3 {
		t.Errorf("%+v", req)
	}
	received := kmsg.NewPtrWriteTxnMarkersRequest()
	received.Version = req.Version
	if err := received.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if got := transactions.MarkersOf(received); !slices.Equal(got, markers) {
		t.Errorf("read %+v", got)
	}
	received.Markers[0].UnknownTags, received.Markers[0].Topics[0].UnknownTags = kmsg.Tags{}, kmsg.Tags{}
	want := markers[0]
	want.Decision, want.LeaderEpoch = 0, kafka.NoLeaderEpoch
	if got := transactions.MarkersOf(received); got[0] != want {
		t.Errorf("of one who knows of no decisions: %+v", got[0])
	}
	codes := []kafka.Code{0, kafka.ErrNotLeaderOrFollower, 0, kafka.ErrInvalidProducerEpoch, 0}
	if got := transactions.CodesOf(markers, transactions.WriteResponse(req, codes)); !slices.Equal(got, codes) {
		t.Errorf("codes %v", got)
	}
	missing := transactions.CodesOf(markers[:1], &kmsg.WriteTxnMarkersResponse{})
	if missing[0] != kafka.ErrUnknownServerError {
		t.Errorf("a marker that was not answered has %s", missing[0])
	}
}
