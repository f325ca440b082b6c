package api_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// register makes another broker known, which serves.
func (w *world) register(id int32) {
	w.t.Helper()
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = id, "cluster", [16]byte{15: byte(id)}
	req.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "other.example", Port: 9092}}
	req.Features = []kmsg.BrokerRegistrationRequestFeature{{Name: controller.LevelFeature, MaxSupportedVersion: metadata.CurrentLevel}}
	resp, err := w.plane.Serve(w.t.Context(), req)
	w.must(err)
	registered := resp.(*kmsg.BrokerRegistrationResponse)
	if code := kafka.Code(registered.ErrorCode); code != kafka.ErrNone {
		w.t.Fatalf("register broker %d: %v", id, code)
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.BrokerID, beat.BrokerEpoch = id, registered.BrokerEpoch
	_, err = w.plane.Serve(w.t.Context(), beat)
	w.must(err)
}

// TestProducersInDoubt: a broker that is cut off refuses what is produced, unlike one whose
// replicas confirm that it leads, and sends those that it refused to the other brokers.
func TestProducersInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var outOfTouch atomic.Bool
		w.services.OutOfTouch = outOfTouch.Load
		topic := w.createTopic("t", 1)
		p := w.replicate(topic)
		w.createTopic("alone", 1)
		w.register(2)
		produce := func(c *client, acks int16) outcome {
			req := produceOf(9, "t", 0, batchOf("v"))
			req.Acks, req.TimeoutMillis = acks, 1000
			return outcomeOf(c.produced(req))
		}
		// told returns who leads, and which brokers there are.
		told := func(c *client) (leader, alone int32, brokers int) {
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 12
			resp := c.ask(req).(*kmsg.MetadataResponse)
			for _, rt := range resp.Topics {
				if *rt.Topic == "alone" {
					alone = rt.Partitions[0].Leader
				} else {
					leader = rt.Partitions[0].Leader
				}
			}
			return leader, alone, len(resp.Brokers)
		}
		expectTold := func(what string, c *client, leader int32, brokers int) {
			t.Helper()
			if l, alone, b := told(c); l != leader || alone != 1 || b != brokers {
				t.Errorf("%s: leader %d, alone %d, %d brokers; want %d, 1, %d", what, l, alone, b, leader, brokers)
			}
		}
		writer, reader := w.connect(), w.connect()
		if got := produce(writer, -1); got.code != kafka.ErrRequestTimedOut {
			t.Errorf("in touch: %v", got)
		}
		outOfTouch.Store(true)
		c := w.connect()
		c.send(produceOf(9, "t", 0, batchOf("asks the replicas")))
		<-time.After(2 * time.Second)
		w.partitions.WakeWaiting()
		c.expectClosed()
		before := p.Log().LogEndOffset()
		if got := produce(writer, -1); got.code != kafka.ErrNotLeaderOrFollower || p.Log().LogEndOffset() != before {
			t.Errorf("cut off: %v, and the log ends at %d, not at %d", got, p.Log().LogEndOffset(), before)
		}
		expectTold("a writer", writer, -1, 1)
		expectTold("a reader", reader, 1, 2)
		if got := produce(w.connect(), 1); got.code != kafka.ErrNone {
			t.Errorf("acks=1: %v", got)
		}
		follow := answering(t, w.connect(), topic)
		follow() // It is told of the round,
		follow() // and answers it.
		expectTold("a writer, when the replicas confirm it", writer, 1, 2)
		outOfTouch.Store(false)
		expectTold("a writer, in touch", writer, 1, 2)
	})
}
