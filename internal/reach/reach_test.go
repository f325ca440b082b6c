package reach_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/reach"
)

var start = time.Unix(1_700_000_000, 0)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestLostClientIsReportedOnce(t *testing.T) {
	w := reach.New()
	lost := reach.Client{Host: "172.18.0.1", ID: "rdkafka"}
	for s := range 12 {
		w.Asked(at(s), lost, "kafka:9092")
	}
	want := []reach.Finding{{Client: lost, Advertised: "kafka:9092", Since: start, Asked: 12}}
	if diff := cmp.Diff(want, w.Tick(at(12))); diff != "" {
		t.Error(diff)
	}
	if got := w.Tick(at(13)); got != nil {
		t.Errorf("reported again: %v", got)
	}
	if diff := cmp.Diff(want, w.Missing()); diff != "" {
		t.Errorf("doctor still has to see it: %s", diff)
	}
	w.Came(at(14), lost)
	if got := w.Missing(); got != nil {
		t.Errorf("it came after all: %v", got)
	}
}

func TestOthersAreNotReported(t *testing.T) {
	w := reach.New()
	listing := reach.Client{Host: "10.0.0.1", ID: "kcat -L"}
	healthy := reach.Client{Host: "10.0.0.2", ID: "app"}
	early := reach.Client{Host: "10.0.0.3", ID: "still starting"}
	w.Asked(at(0), listing, "a:1")
	for s := range 20 {
		w.Asked(at(s), healthy, "a:1")
	}
	w.Came(at(3), healthy)
	w.Asked(at(15), early, "a:1")
	w.Asked(at(18), early, "a:1")
	if got := w.Tick(at(20)); got != nil {
		t.Errorf("reported %v", got)
	}
}

func TestBounds(t *testing.T) {
	w := reach.New()
	for i := range 3 * reach.MaxClients {
		c := reach.Client{Host: fmt.Sprint(i)}
		w.Asked(at(0), c, "a:1")
		w.Asked(at(11), c, "a:1")
	}
	if got := len(w.Tick(at(12))); got != reach.MaxClients {
		t.Errorf("%d clients are kept, want %d", got, reach.MaxClients)
	}
	if w.Tick(at(1000)); len(w.Missing()) != 0 {
		t.Error("the silent are not forgotten")
	}
}
