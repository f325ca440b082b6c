package metrics

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Register has all of the table's metrics collected by a registry of the caller's,
// but for the series of single partitions, and those of the Go runtime and the
// process, which are the caller's own. release takes them out again.
func Register(r prometheus.Registerer, s Sources) (release func(), err error) {
	var registered []prometheus.Collector
	release = func() {
		for _, c := range registered {
			r.Unregister(c)
		}
	}
	turn := &sync.Mutex{}
	for _, c := range s.collectors(Sums) {
		one := &inTurn{c, turn}
		if err := r.Register(one); err != nil {
			release()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		registered = append(registered, one)
	}
	return release, nil
}

// inTurn is a collector that shares a lock with the others: a registry collects from
// all of them at once.
type inTurn struct {
	*collector
	turn *sync.Mutex
}

// Collect implements prometheus.Collector.
func (c *inTurn) Collect(ch chan<- prometheus.Metric) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.collector.Collect(ch)
}
