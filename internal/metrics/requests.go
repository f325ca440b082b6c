package metrics

import (
	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/wire"
)

func (s *Sources) collectRequests(to *scrape) {
	var begun, answered uint64
	for key, times := range s.Wire.Times() {
		name := api.Name(key)
		total, queued := times.Total.Read(), times.Queued.Read() // In this order: none is answered before it began.
		begun += queued.Count
		answered += total.Count
		to.counter("strandline_requests_total", float64(queued.Count), "api", name)
		to.histogram("strandline_request_duration_seconds", total, name)
		to.histogram("strandline_request_queue_seconds", queued, name)
	}
	to.gauge("strandline_requests_in_flight", float64(max(int64(begun-answered), 0)))
	for e := range s.API.ErrorCounts() {
		to.counter("strandline_request_errors_total", float64(e.Count), "api", api.Name(e.Key), "code", codeName(e))
	}
	s.collectConnections(to)
}

// codeName is Kafka's name of a code, or OTHER for the codes that are counted
// together.
func codeName(e api.ErrorCount) string {
	if e.Other {
		return "OTHER"
	}
	return e.Code.String()
}

func (s *Sources) collectConnections(to *scrape) {
	st := s.Wire.Stats()
	to.gauge("strandline_connections", float64(st.Connections))
	to.gauge("strandline_connections_limit", float64(st.ConnectionsLimit))
	to.counter("strandline_connections_accepted_total", float64(st.Accepted))
	to.counter("strandline_connections_refused_total", float64(st.Refused))
	for reason, n := range st.Closed {
		if n > 0 {
			to.counter("strandline_connections_closed_total", float64(n), "reason", wire.CloseReason(reason).String())
		}
	}
	to.gauge("strandline_request_memory_bytes", float64(st.QueuedBytes))
	to.gauge("strandline_request_memory_limit_bytes", float64(st.QueuedBytesLimit))
	to.gauge("strandline_request_memory_waiting_connections", float64(st.QueuedWaiters))
	to.counter("strandline_network_received_bytes_total", float64(st.BytesIn))
	to.counter("strandline_network_sent_bytes_total", float64(st.BytesOut))
}
