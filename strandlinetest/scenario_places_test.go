package strandlinetest_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// TestBrokersExchangePlaces: two brokers start again where the other one listened. Replicas
// come in sync, and leaders and the active controller are found, whichever of the three is
// the first to lead; connections to the old places lead to a broker that answers, too.
func TestBrokersExchangePlaces(t *testing.T) {
	for _, pair := range [][2]int{{1, 2}, {2, 3}, {1, 3}} {
		for name, end := range map[string]func(*strandlinetest.Cluster, ...int){
			"stopped": (*strandlinetest.Cluster).Stop, "killed": (*strandlinetest.Cluster).Kill,
		} {
			t.Run(fmt.Sprint(pair, " ", name), func(t *testing.T) {
				c := strandlinetest.StartCluster(t, 3)
				if _, err := admin(t, c).CreateTopic(t.Context(), 6, 3, nil, "moved"); err != nil {
					t.Fatal(err)
				}
				client := dial(t, c, kgo.DefaultProduceTopic("moved"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
				defer client.Close()
				write := func() {
					t.Helper()
					for i := range 12 {
						if err := client.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
							t.Fatal(err)
						}
					}
				}
				inSync := func() bool {
					for p := range int32(6) {
						if len(c.InSync("moved", p)) != 3 {
							return false
						}
					}
					return true
				}
				write()
				end(c, pair[0], pair[1])
				c.Exchange(pair[0], pair[1])
				c.Restart(pair[0], pair[1])
				c.Await("all replicas are in sync", inSync)
				write()
				third := 6 - pair[0] - pair[1]
				c.Kill(third)
				write()
				c.Restart(third)
				c.Await("all replicas are in sync again", inSync)
			})
		}
	}
}
