package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// topView is what top shows: rates and times of the interval between two
// samples. A number that is not known is -1.
type topView struct {
	At       time.Time    `json:"at"`
	Seconds  float64      `json:"seconds"` // The interval.
	Total    topTotal     `json:"total"`
	Topics   []topTopic   `json:"topics"`
	Groups   []topGroup   `json:"groups"`
	Requests []topRequest `json:"requests"`
}

// topTotal is about the brokers as a whole.
type topTotal struct {
	RecordsIn  float64 `json:"records_in_per_second"`
	BytesIn    float64 `json:"bytes_in_per_second"`
	RecordsOut float64 `json:"records_out_per_second"`
	BytesOut   float64 `json:"bytes_out_per_second"`

	Connections      float64 `json:"connections"`
	ConnectionsLimit float64 `json:"connections_limit"`
	InFlight         float64 `json:"requests_in_flight"`
	Memory           float64 `json:"request_memory"`
	MemoryLimit      float64 `json:"request_memory_limit"`

	DiskFree  float64 `json:"disk_free"`
	DiskTotal float64 `json:"disk_total"`
	DiskReads float64 `json:"disk_read_bytes_per_second"`
	Rounds    float64 `json:"journal_rounds_per_second"`
	SyncP50   float64 `json:"sync_p50_seconds"`
	SyncP99   float64 `json:"sync_p99_seconds"`

	CPU    float64 `json:"cpu_cores"`
	RSS    float64 `json:"resident_memory"`
	Uptime float64 `json:"uptime_seconds"` // Of the broker that started last.

	Partitions      float64 `json:"partitions"`
	UnderReplicated float64 `json:"partitions_under_replicated"`
	UnderMin        float64 `json:"partitions_under_min_in_sync"`
	Offline         float64 `json:"partitions_offline"`
	Corrupt         float64 `json:"partitions_corrupt"`
	Leaderless      float64 `json:"partitions_without_leader"`
}

// topTopic is one topic.
type topTopic struct {
	Topic      string  `json:"topic"`
	Partitions float64 `json:"partitions"`
	Size       float64 `json:"size"`
	RecordsIn  float64 `json:"records_in_per_second"`
	BytesIn    float64 `json:"bytes_in_per_second"`
	RecordsOut float64 `json:"records_out_per_second"`
	BytesOut   float64 `json:"bytes_out_per_second"`
}

// topGroup is one consumer group.
type topGroup struct {
	Group      string  `json:"group"`
	Members    float64 `json:"members"`
	Lag        float64 `json:"lag"`
	LagSeconds float64 `json:"lag_seconds"`
	Topics     int     `json:"topics"`
}

// topRequest is one kind of request.
type topRequest struct {
	Request  string  `json:"request"`
	Rate     float64 `json:"per_second"`
	P50      float64 `json:"p50_seconds"`
	P99      float64 `json:"p99_seconds"`
	QueueP99 float64 `json:"queue_p99_seconds"`
	Errors   float64 `json:"errors_per_second"`
}

// between computes from two samples.
type between struct {
	old, new topSample
	seconds  float64
}

// rate returns how much a counter grew in a second. One that fell began anew.
func (b *between) rate(name string, labels ...string) float64 {
	return b.grown(b.old.value(name, labels...), b.new.value(name, labels...))
}

func (b *between) grown(before, after float64) float64 {
	if after < before {
		before = 0
	}
	if b.seconds <= 0 {
		return 0
	}
	return (after - before) / b.seconds
}

// times returns what a histogram counted in the interval.
func (b *between) times(name string, labels ...string) topHistogram {
	key := seriesKey(name, labels...)
	return b.new.times[key].since(b.old.times[key])
}

// viewBetween says what happened between two samples.
func viewBetween(old, now topSample) topView {
	b := &between{old, now, now.at.Sub(old.at).Seconds()}
	v := topView{At: now.at, Seconds: b.seconds, Topics: b.topics(), Groups: b.groups(), Requests: b.requests()}
	v.Total = b.total()
	for _, t := range v.Topics {
		v.Total.RecordsIn += t.RecordsIn
		v.Total.BytesIn += t.BytesIn
		v.Total.RecordsOut += t.RecordsOut
		v.Total.BytesOut += t.BytesOut
	}
	return v
}

func (b *between) total() topTotal {
	syncs := b.times("strandline_journal_sync_duration_seconds")
	return topTotal{
		Connections:      b.new.value("strandline_connections"),
		ConnectionsLimit: b.new.value("strandline_connections_limit"),
		InFlight:         b.new.value("strandline_requests_in_flight"),
		Memory:           b.new.value("strandline_request_memory_bytes"),
		MemoryLimit:      b.new.value("strandline_request_memory_limit_bytes"),
		DiskFree:         b.new.value("strandline_disk_free_bytes"),
		DiskTotal:        b.new.value("strandline_disk_size_bytes"),
		DiskReads:        b.rate("strandline_process_disk_read_bytes_total"),
		Rounds:           b.rate("strandline_journal_rounds_total"),
		SyncP50:          syncs.quantile(0.5), SyncP99: syncs.quantile(0.99),
		CPU:             b.rate("process_cpu_seconds_total"),
		RSS:             b.new.value("process_resident_memory_bytes"),
		Uptime:          b.uptime(),
		Partitions:      b.new.value("strandline_partitions"),
		UnderReplicated: b.new.value("strandline_partitions_under_replicated"),
		UnderMin:        b.new.value("strandline_partitions_under_min_in_sync"),
		Offline:         b.new.value("strandline_partitions_offline"),
		Corrupt:         b.new.value("strandline_partitions_corrupt"),
		Leaderless:      b.new.value("strandline_cluster_partitions_leaderless"),
	}
}

// uptime is only known of a single broker: start times do not add up.
func (b *between) uptime() float64 {
	started := b.new.value("process_start_time_seconds")
	up := float64(b.new.at.UnixMilli())/1e3 - started
	if started == 0 || up < 0 {
		return -1
	}
	return up
}

func (b *between) topics() []topTopic {
	all := []topTopic{}
	for _, topic := range b.new.of("strandline_topic_partitions", "topic") {
		all = append(all, topTopic{
			Topic:      topic,
			Partitions: b.new.value("strandline_topic_partitions", "topic", topic),
			Size:       b.new.value("strandline_topic_size_bytes", "topic", topic),
			RecordsIn:  b.rate("strandline_topic_received_records_total", "topic", topic),
			BytesIn:    b.rate("strandline_topic_received_bytes_total", "topic", topic),
			RecordsOut: b.rate("strandline_topic_sent_records_total", "topic", topic),
			BytesOut:   b.rate("strandline_topic_sent_bytes_total", "topic", topic),
		})
	}
	return all
}

func (b *between) groups() []topGroup {
	all := []topGroup{}
	for _, group := range b.new.of("strandline_group_members", "group") {
		g := topGroup{Group: group, Members: b.new.value("strandline_group_members", "group", group), LagSeconds: -1}
		for _, topic := range b.new.of("strandline_group_topic_lag_records", "topic") {
			records, ok := b.new.values[seriesKey("strandline_group_topic_lag_records", "group", group, "topic", topic)]
			if !ok {
				continue
			}
			g.Topics++
			g.Lag += records
			if s, ok := b.new.values[seriesKey("strandline_group_topic_lag_seconds", "group", group, "topic", topic)]; ok {
				g.LagSeconds = max(g.LagSeconds, s)
			}
		}
		all = append(all, g)
	}
	return all
}

func (b *between) requests() []topRequest {
	all := []topRequest{}
	for _, name := range b.new.of("strandline_requests_total", "api") {
		times := b.times("strandline_request_duration_seconds", "api", name)
		queue := b.times("strandline_request_queue_seconds", "api", name)
		all = append(all, topRequest{
			Request: name, Rate: b.rate("strandline_requests_total", "api", name),
			P50: times.quantile(0.5), P99: times.quantile(0.99), QueueP99: queue.quantile(0.99),
			Errors: b.grown(b.old.sum("strandline_request_errors_total", "api", name),
				b.new.sum("strandline_request_errors_total", "api", name)),
		})
	}
	return all
}

// topSorts are the names of what topics can be sorted by. Groups are sorted by
// their lag, and requests by their rate.
func topSorts() []string { return []string{"in", "out", "size", "name"} }

func topSortOf(name string) int { return slices.Index(topSorts(), name) }

// arrange sorts, and drops what the filter does not let pass.
func (v *topView) arrange(sort int, filter string) {
	v.Topics = slices.DeleteFunc(v.Topics, func(t topTopic) bool { return !strings.Contains(t.Topic, filter) })
	v.Groups = slices.DeleteFunc(v.Groups, func(g topGroup) bool { return !strings.Contains(g.Group, filter) })
	slices.SortStableFunc(v.Topics, func(a, b topTopic) int {
		first := 0
		switch topSorts()[sort] {
		case "in":
			first = cmp.Compare(b.BytesIn, a.BytesIn)
		case "out":
			first = cmp.Compare(b.BytesOut, a.BytesOut)
		case "size":
			first = cmp.Compare(b.Size, a.Size)
		}
		return cmp.Or(first, cmp.Compare(a.Topic, b.Topic))
	})
	slices.SortStableFunc(v.Groups, func(a, b topGroup) int {
		return cmp.Or(cmp.Compare(b.LagSeconds, a.LagSeconds), cmp.Compare(b.Lag, a.Lag), cmp.Compare(a.Group, b.Group))
	})
	slices.SortStableFunc(v.Requests, func(a, b topRequest) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Request, b.Request))
	})
}

func (v *topView) clone() topView {
	c := *v
	c.Topics, c.Groups, c.Requests = slices.Clone(v.Topics), slices.Clone(v.Groups), slices.Clone(v.Requests)
	return c
}
