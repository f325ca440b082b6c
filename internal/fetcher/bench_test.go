package fetcher_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/fetcher"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// BenchmarkReplicate takes one record from a leader's append to its acknowledgement by
// two brokers in memory, which share many other partitions.
func BenchmarkReplicate(b *testing.B) {
	for _, partitions := range []int{1, 1000} {
		b.Run(fmt.Sprint("partitions=", partitions), func(b *testing.B) {
			w := &world{
				t: b, network: netx.NewMemory(), nodes: map[kafka.BrokerID]*node{}, deaf: map[kafka.BrokerID]bool{},
				log: &logtest.Log{}, level: slog.LevelError, settings: fetcher.DefaultSettings(),
			}
			var err error
			w.state, err = controller.New(controller.Options{}, &metadata.Image{})
			w.must(err)
			records := []metadata.Record{&metadata.ClusterRecord{ClusterID: "cluster", Level: metadata.CurrentLevel}}
			for id := kafka.BrokerID(1); id <= 2; id++ {
				records = append(records, w.registered(id, kafka.BrokerEpoch(id)))
				w.nodes[id] = w.start(id, memfs.New())
			}
			w.decide(records...)
			w.create("orders", partitions, 1, 2)
			<-time.After(200 * time.Millisecond)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				n := int32(i % partitions)
				w.acked(1, "orders", n, w.produce(1, "orders", n, "value"))
				i++
			}
			b.StopTimer()
			for _, n := range w.nodes {
				n.stop()
			}
		})
	}
}
