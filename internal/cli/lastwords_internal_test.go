package cli

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLastWords(t *testing.T) {
	w := newLastWords(nil)
	log := func(msg, answer string) { w.Log(kgo.LogLevelDebug, msg, "broker", "1", "to", answer) }
	log("produced", "orders[0{retrying@-1,3(KAFKA_STORAGE_ERROR: "+kerr.KafkaStorageError.Description+
		")}, 1{17=>18}, 12{retrying@-1,1(NOT_ENOUGH_REPLICAS: Messages are rejected)}]")
	log("something else", "orders[0{1=>2}]")
	log("produced", "orders[not of this kind, 3{, x{retrying(")
	for partition, want := range map[int32]error{0: kerr.KafkaStorageError, 1: nil, 12: kerr.NotEnoughReplicas, 2: nil, 3: nil} {
		if got := w.of(partition); !errors.Is(got, want) {
			t.Errorf("partition %d: %v, want %v", partition, got, want)
		}
	}
	if w.of(-1) == nil {
		t.Error("nothing is said of a record that waits for others")
	}
	log("produced", "orders[0{20=>22}, 12{skipped@-1,4(REQUEST_TIMED_OUT: The request timed out.)}]")
	if got := w.of(0); got != nil {
		t.Errorf("after an acknowledgement: %v", got)
	}
	if got := w.of(12); !errors.Is(got, kerr.RequestTimedOut) {
		t.Errorf("after another answer: %v", got)
	}
}
