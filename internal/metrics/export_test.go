package metrics

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Count returns a counter of rare events: its name, and the value of its label
// behind it; "shrink" and "expand" are changes of the ISR.
func (e *Events) Count(name string) uint64 {
	switch name {
	case "shrink":
		return e.isrShrinks.Load()
	case "expand":
		return e.isrExpansions.Load()
	}
	ch := make(chan prometheus.Metric, 100)
	e.collect(&scrape{collector: &collector{descs: newDescs()}, to: ch})
	close(ch)
	name, label, _ := strings.Cut(name, " ")
	for m := range ch {
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			panic(err)
		}
		if strings.Contains(m.Desc().String(), `"`+name+`"`) && (label == "" || d.GetLabel()[0].GetValue() == label) {
			return uint64(d.GetCounter().GetValue())
		}
	}
	return 0
}

// Requests returns how many requests a route had.
func (h *HTTP) Requests(route string) (n uint64) {
	h.statuses.Range(func(key, count any) bool {
		if key.(routeStatus).route == route {
			n += count.(*atomic.Uint64).Load()
		}
		return true
	})
	return n
}
