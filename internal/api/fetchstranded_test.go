package api_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// TestStrandedReaders: a broker that is cut off closes the connections of consumers that
// have read what it has, unless its replicas say that it leads still.
func TestStrandedReaders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var outOfTouch atomic.Bool
		w.services.OutOfTouch = outOfTouch.Load
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		w.register(2)
		// told returns who leads, and how many brokers there are.
		told := func() (leader int32, brokers int) {
			req := kmsg.NewPtrMetadataRequest()
			req.Version = 12
			resp := w.connect().ask(req).(*kmsg.MetadataResponse)
			return resp.Topics[0].Partitions[0].Leader, len(resp.Brokers)
		}
		w.connect().write(topic, "a")
		follow := answering(t, w.connect(), topic)
		follow()
		// served has a consumer of what is at an offset ask for a while, and returns for how
		// long it was answered.
		served := func(offset kafka.Offset, meanwhile func()) time.Duration {
			c, began := w.connect(), time.Now()
			for time.Since(began) < 30*time.Second {
				req := fetchOf(16, topic, offset)
				req.MaxWaitMillis = 500
				c.send(req)
				if _, _, err := c.receiveFrame(); err != nil {
					break
				}
				meanwhile()
			}
			return time.Since(began)
		}
		nothing := func() {}
		if took := served(1, nothing); took < 30*time.Second {
			t.Errorf("in touch: %v", took)
		}
		outOfTouch.Store(true)
		for range 2 {
			if took := served(1, nothing); took < 5*time.Second || took > 7*time.Second {
				t.Errorf("cut off: %v", took)
			}
			if reason := (<-w.closed).Error(); !strings.Contains(reason, "is cut off from the cluster") {
				t.Errorf("closed because of %q", reason)
			}
			if leader, brokers := told(); leader != -1 || brokers != 1 {
				t.Errorf("who dials again is told of leader %d and %d brokers", leader, brokers)
			}
			if leader, brokers := told(); leader != 1 || brokers != 2 {
				t.Errorf("who comes back is told of leader %d and %d brokers", leader, brokers)
			}
		}
		if took := served(1, follow); took < 30*time.Second {
			t.Errorf("cut off from the controller, but not from the follower: %v", took)
		}
		pace := func() { <-time.After(500 * time.Millisecond) }
		if took := served(0, pace); took < 30*time.Second {
			t.Errorf("with something to read: %v", took)
		}
	})
}
