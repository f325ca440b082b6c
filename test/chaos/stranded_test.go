package chaos_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestStrandedConsumers: consumers that know all brokers, and have a connection to their
// leader alone, read on elsewhere when that one is cut off from the others and not from
// them: nothing that it says tells them so.
func TestStrandedConsumers(t *testing.T) {
	links, c, l := startLinkedLoad(t, "stranded")
	l.slow(time.Millisecond) // The consumer is to get to the end of what there is.
	for _, node := range []int{1, 2, 3} {
		l.awaitMore(500)
		ctx, cancel := context.WithCancel(t.Context())
		heard := make(chan time.Time, 1)
		var reading sync.WaitGroup
		// Its metadata is of before, and lasts: only a connection that ends has it ask again.
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.ConsumeTopics("stranded"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.AlwaysRetryEOF(), kgo.MetadataMaxAge(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		cut := make(chan struct{})
		reading.Go(func() {
			led := map[int32]bool{}
			for ctx.Err() == nil {
				for r := range cl.PollFetches(ctx).RecordsAll() {
					select {
					case <-cut:
						led[r.Partition] = true
					default:
					}
				}
				if len(led) == 6 {
					heard <- time.Now()
					return
				}
			}
		})
		l.awaitMore(500)
		links.Isolate(node, 0)
		began := time.Now()
		l.awaitEach(began) // Others lead all partitions.
		close(cut)
		select {
		case at := <-heard:
			t.Logf("node %d cut off: its consumer had records of all partitions again after %v", node, at.Sub(began))
		case <-time.After(30 * time.Second):
			t.Errorf("node %d cut off: its consumer still reads what that has", node)
		}
		cancel()
		reading.Wait()
		cl.Close()
		links.Heal()
		awaitInSync(t.Context(), t, c.Addrs(), "stranded")
	}
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
}
