package strandlinetest_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// A node that is alone so far, and open to others, goes on after a stop as after a crash.
func TestLoneNodeComesBack(t *testing.T) {
	c := strandlinetest.StartCluster(t, 1)
	produce := func() {
		t.Helper()
		cl := dial(t, c, kgo.AllowAutoTopicCreation())
		defer cl.Close()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce()
	c.Stop(1)
	c.Restart(1)
	produce()
	c.Kill(1)
	c.Restart(1)
	produce()
}
