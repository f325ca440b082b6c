package metrics_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/metrics"
)

// What was produced, read and committed shows with exactly these values.
func TestValuesAfterKnownTraffic(t *testing.T) {
	w := newWorld(t, nil)
	w.create("orders", 3)
	hourAgo := time.Now().Add(-time.Hour)
	w.produce("orders", 1, 40, hourAgo)
	w.produce("orders", 1, 60, time.Now())
	w.produce("orders", 2, 7, time.Now())
	w.consume("orders", 1, 100)
	w.commit("late", "orders", 1, 0)
	w.commit("late", "orders", 2, 7)
	w.commit("fresh", "orders", 1, 100)
	s := w.scrape()
	w.want(s, map[string]float64{
		"strandline_topic_received_records_total{topic=orders}":                    107,
		"strandline_topic_sent_records_total{topic=orders}":                        100,
		"strandline_topic_partitions{topic=orders}":                                3,
		"strandline_topic_received_bytes_total{topic=orders}":                      s.value("strandline_topic_size_bytes", "topic=orders"),
		"strandline_topic_sent_bytes_total{topic=orders}":                          s.value("strandline_partition_size_bytes", "topic=orders", "partition=1"),
		"strandline_partition_log_start_offset{topic=orders,partition=1}":          0,
		"strandline_partition_log_end_offset{topic=orders,partition=1}":            100,
		"strandline_partition_high_watermark{topic=orders,partition=1}":            100,
		"strandline_partition_log_end_offset{topic=orders,partition=2}":            7,
		"strandline_partition_leader_epoch{topic=orders,partition=2}":              0,
		"strandline_partitions":                                                    5,
		"strandline_partitions_led":                                                5,
		"strandline_partitions_under_replicated":                                   0,
		"strandline_partitions_under_min_in_sync":                                  0,
		"strandline_partitions_offline":                                            0,
		"strandline_partitions_corrupt":                                            0,
		"strandline_group_lag_records{group=late,topic=orders,partition=1}":        100,
		"strandline_group_lag_records{group=late,topic=orders,partition=2}":        0,
		"strandline_group_lag_seconds{group=late,topic=orders,partition=2}":        0,
		"strandline_group_lag_records{group=fresh,topic=orders,partition=1}":       0,
		"strandline_group_topic_lag_records{group=late,topic=orders}":              100,
		"strandline_group_members{group=late}":                                     0,
		"strandline_groups{state=Empty}":                                           2,
		"strandline_requests_total{api=CreateTopics}":                              1,
		"strandline_request_duration_seconds{api=CreateTopics}":                    1,
		"strandline_request_queue_seconds{api=Produce}":                            s.value("strandline_requests_total", "api=Produce"),
		"strandline_cluster_brokers":                                               1,
		"strandline_cluster_topics":                                                2,
		"strandline_cluster_partitions":                                            5,
		"strandline_controller_active":                                             1,
		"strandline_quorum_leader":                                                 1,
		"strandline_broker_ready":                                                  1,
		"strandline_journal_round_size_bytes":                                      s.value("strandline_journal_rounds_total"),
		"strandline_journal_sync_duration_seconds":                                 s.value("strandline_journal_rounds_total"),
		"strandline_http_requests_total{route=GET /metrics,status=200}":            -1, // Counted when it is over.
		"strandline_broker_info{cluster_id=" + w.clusterID() + ",node_id=1,rack=}": 1,
		"strandline_isr_changes_total{change=shrink}":                              0,
		"strandline_request_memory_waiting_connections":                            0,
		"strandline_connections_refused_total":                                     0,
		"strandline_cluster_partitions_leaderless":                                 0,
		"strandline_group_topic_lag_seconds{group=fresh,topic=orders}":             0,
		"strandline_topic_received_records_total{topic=__consumer_offsets}":        3,
	})
	age := s.value("strandline_group_lag_seconds", "group=late", "topic=orders", "partition=1")
	if age < 3600 || age > 3660 {
		t.Errorf("the first record not committed is %v s old, want an hour", age)
	}
	w.commit("late", "orders", 1, 40) // Behind the old ones: the age is looked up anew.
	age = w.scrape().value("strandline_group_topic_lag_seconds", "group=late", "topic=orders")
	if age < 0 || age > 60 {
		t.Errorf("the first record not committed is %v s old, want few", age)
	}
}

func (w *world) clusterID() string {
	w.Helper()
	m, err := w.admin.BrokerMetadata(w.ctx())
	if err != nil {
		w.Fatal(err)
	}
	return m.Cluster
}

// Errors are counted by request and code, wherever in an answer they stand.
func TestErrorCodes(t *testing.T) {
	w := newWorld(t, map[string]string{"auto.create.topics.enable": "false"})
	w.create("small", 1)
	record := &kgo.Record{Topic: "small", Partition: 0, Value: make([]byte, 900<<10)}
	short := []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("1000")}}
	if _, err := w.admin.AlterTopicConfigs(w.ctx(), short, "small"); err != nil {
		t.Fatal(err)
	}
	if err := w.client.ProduceSync(w.ctx(), record).FirstErr(); err == nil {
		t.Error("a batch beyond max.message.bytes was taken")
	}
	if resp, err := w.admin.CreateTopics(w.ctx(), 1, 1, nil, "small"); err != nil || resp["small"].Err == nil {
		t.Errorf("created twice: %v, %v", resp, err)
	}
	if _, err := w.admin.DescribeGroups(w.ctx(), "nobody"); err != nil {
		t.Log(err)
	}
	if _, err := w.admin.DeleteGroups(w.ctx(), "nobody"); err != nil {
		t.Log(err)
	}
	s := w.scrape()
	w.want(s, map[string]float64{
		"strandline_request_errors_total{api=Produce,code=MESSAGE_TOO_LARGE}":         1,
		"strandline_request_errors_total{api=CreateTopics,code=TOPIC_ALREADY_EXISTS}": 1,
		"strandline_request_errors_total{api=DescribeGroups,code=GROUP_ID_NOT_FOUND}": 1,
		"strandline_request_errors_total{api=DeleteGroups,code=GROUP_ID_NOT_FOUND}":   1,
		"strandline_request_errors_total{api=Fetch,code=UNKNOWN_TOPIC_OR_PARTITION}":  -1,
		"strandline_topic_received_records_total{topic=small}":                        0,
		"strandline_requests_in_flight":                                               0,
	})
}

// Names and units follow Prometheus' rules; all of the table shows, and what
// shows is in the table.
func TestNamesFollowTheRules(t *testing.T) {
	w := busyWorld(t)
	text := w.text("/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	s := w.parse(text)
	known := map[string]metrics.Metric{}
	for _, ms := range metrics.All() {
		for _, m := range ms {
			known[m.Name] = m
			if s[m.Name] == nil && m.Name != "strandline_process_disk_read_bytes_total" &&
				m.Name != "strandline_process_disk_written_bytes_total" {
				t.Errorf("%s is in the table and not in %s", m.Name, s.names())
			}
		}
	}
	for name, family := range s {
		m, ok := known[name]
		if !ok {
			if strings.HasPrefix(name, "strandline_") {
				t.Errorf("%s is not in the table", name)
			}
			continue
		}
		if got := strings.ToLower(family.GetType().String()); got != m.Type {
			t.Errorf("%s is a %s, the table says %s", name, got, m.Type)
		}
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has labels %v, the table says %v", name, labels, want)
		}
	}
}

// busyWorld has had a bit of everything.
func busyWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.create("orders", 2)
	w.produce("orders", 0, 10, time.Now())
	w.consume("orders", 0, 10)
	w.commit("billing", "orders", 0, 3)
	w.post("orders", `{"value":"eA==","idempotency_key":"a"}`)
	if _, err := w.admin.CreateTopics(w.ctx(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	w.text("/healthz")
	// The consumer's connection is gone for the broker a moment after it was for
	// the client.
	for w.scrape()["strandline_connections_closed_total"] == nil {
		if t.Context().Err() != nil {
			t.Fatal("no connection was closed")
		}
	}
	return w
}

// Series of single partitions can be done without.
func TestPartitionSeriesAreBounded(t *testing.T) {
	w := newWorld(t, map[string]string{"metrics.partition.series.max": "4"})
	w.create("a", 1)
	w.produce("a", 0, 5, time.Now())
	w.commit("g", "a", 0, 2)
	s := w.scrape() // Three partitions: one, and two of __consumer_offsets.
	w.want(s, map[string]float64{
		"strandline_partition_log_end_offset{topic=a,partition=0}":  5,
		"strandline_group_lag_records{group=g,topic=a,partition=0}": 3,
	})
	without := w.parse(w.text("/metrics?partitions=no"))
	w.create("b", 2)
	for name, s := range map[string]scraped{"beyond the limit": w.scrape(), "on request": without} {
		if s["strandline_partition_log_end_offset"] != nil || s["strandline_group_lag_records"] != nil {
			t.Errorf("%s: single partitions show", name)
		}
		w.want(s, map[string]float64{
			"strandline_group_topic_lag_records{group=g,topic=a}": 3,
			"strandline_topic_received_records_total{topic=a}":    5,
		})
	}
}

// Groups that anybody can make up have no series without bound: those with members
// go first, then names, and how many are left out shows.
func TestGroupSeriesAreBounded(t *testing.T) {
	w := newWorld(t, map[string]string{"metrics.group.series.max": "5"})
	w.create("a", 1)
	w.produce("a", 0, 5, time.Now())
	for _, group := range []string{"z", "y", "x"} { // Two each: itself, and its topic.
		w.commit(group, "a", 0, 2)
	}
	w.want(w.scrape(), map[string]float64{
		"strandline_groups_unlisted":                                1,
		"strandline_groups{state=Empty}":                            3,
		"strandline_group_members{group=x}":                         0,
		"strandline_group_generation{group=y}":                      0,
		"strandline_group_topic_lag_records{group=y,topic=a}":       3,
		"strandline_group_lag_records{group=y,topic=a,partition=0}": 3,
		"strandline_group_members{group=z}":                         -1,
		"strandline_group_topic_lag_records{group=z,topic=a}":       -1,
		"strandline_group_lag_records{group=z,topic=a,partition=0}": -1,
	})
	// A member of z makes it one of those that show.
	resp, err := http.Get("http://" + w.server.HTTPAddr() + "/v1/topics/a/consume?group=z")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.want(w.scrape(), map[string]float64{
		"strandline_groups_unlisted":                                       1,
		"strandline_group_members{group=z}":                                1,
		"strandline_group_members{group=x}":                                0,
		"strandline_group_members{group=y}":                                -1,
		"strandline_http_sessions":                                         1,
		"strandline_http_sessions_limit":                                   1000,
		"strandline_http_sessions_begun_total":                             1,
		"strandline_http_session_joins_total{kind=first}":                  1,
		"strandline_http_sessions_ended_total{reason=expired}":             0,
		"strandline_http_connections_refused_total{limit=max.connections}": 0,
	})
}

// Whatever a group is called, a scrape can be read, and what it says is right.
func TestNamesOfGroups(t *testing.T) {
	w := newWorld(t, nil)
	w.create("a", 1)
	w.produce("a", 0, 5, time.Now())
	for _, group := range []string{"a \"b\"", `c\d\n`, "e\nf", "{g=\"h\"} 1", "\xff", "ü"} {
		w.commit(group, "a", 0, 2)
		shown := strings.ToValidUTF8(group, "\uFFFD")
		s := w.scrape()
		for _, name := range []string{"strandline_group_lag_records", "strandline_group_lag_seconds"} {
			if s.value(name, "group="+shown, "topic=a", "partition=0") < 0 {
				t.Errorf("group %q is not in %s", group, name)
			}
		}
		if s.value("strandline_group_members", "group="+shown) != 0 || s.value("strandline_group_topic_lag_records", "group="+shown, "topic=a") != 3 {
			t.Errorf("group %q is not shown", group)
		}
	}
}

// How many idempotency keys are kept shows, and how old the oldest is.
func TestIdempotencyKeys(t *testing.T) {
	w := newWorld(t, nil)
	w.create("orders", 3)
	w.want(w.scrape(), map[string]float64{"strandline_idempotency_kept_keys{topic=orders}": -1})
	for _, key := range []string{"a", "b", "a"} {
		w.post("orders", `{"value":"eA==","idempotency_key":"`+key+`"}`)
	}
	s := w.scrape()
	w.want(s, map[string]float64{
		"strandline_idempotency_kept_keys{topic=orders}":                                   2,
		"strandline_idempotency_keys":                                                      2,
		"strandline_idempotency_keys_limit":                                                1e6,
		"strandline_idempotency_evicted_keys_total{limit=partition}":                       0,
		"strandline_idempotency_evicted_keys_total{limit=broker}":                          0,
		"strandline_topic_received_records_total{topic=orders}":                            2,
		"strandline_http_requests_total{route=POST /v1/topics/{topic}/produce,status=200}": 3,
		"strandline_http_request_duration_seconds{route=POST /v1/topics/{topic}/produce}":  3,
	})
	if age := s.value("strandline_idempotency_oldest_key_age_seconds", "topic=orders"); age < 0 || age > 30 {
		t.Errorf("the oldest key is %v s old", age)
	}
}

// What strangers ask for over HTTP is no label.
func TestHTTPRoutes(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/nothing/here", "/nothing/there", "/healthz"} {
		resp, err := http.Get("http://" + w.server.HTTPAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.want(w.scrape(), map[string]float64{
		"strandline_http_requests_total{route=none,status=404}":         2,
		"strandline_http_requests_total{route=GET /healthz,status=200}": 1,
		"strandline_http_request_duration_seconds{route=GET /healthz}":  1,
		"strandline_http_request_duration_seconds{route=none}":          2,
	})
}

// Scrapes run while topics come and go and records flow.
func TestScrapesWhileEverythingMoves(t *testing.T) {
	w := newWorld(t, nil)
	w.create("steady", 2)
	var g sync.WaitGroup
	g.Go(func() {
		for i := range 20 {
			topic := fmt.Sprint("passing-", i)
			w.create(topic, 2)
			w.produce(topic, 1, 3, time.Now())
			w.commit("g", topic, 1, 1)
			if _, err := w.admin.DeleteTopics(w.ctx(), topic); err != nil {
				t.Error(err)
			}
		}
	})
	g.Go(func() {
		for i := range 50 {
			w.produce("steady", int32(i%2), 5, time.Now())
			w.commit("h", "steady", int32(i%2), int64(i))
		}
	})
	for range 2 {
		g.Go(func() {
			for range 30 {
				w.scrape()
			}
		})
	}
	g.Wait()
	w.want(w.scrape(), map[string]float64{"strandline_topic_received_records_total{topic=steady}": 250})
}

// Every metric that the dashboard and the alerts ask for exists.
func TestDashboardAndAlerts(t *testing.T) {
	w := busyWorld(t)
	s := w.scrape()
	exists := func(name string) bool {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			base, ok := strings.CutSuffix(name, suffix)
			if f := s[base]; ok && f != nil && (suffix == "" || f.GetType() == dto.MetricType_HISTOGRAM) {
				return true
			}
		}
		return false
	}
	names := regexp.MustCompile(`\b(strandline|go|process)_[a-z0-9_]+`)
	for path, least := range map[string]int{"grafana/strandline.json": 50, "alerts.yaml": 12} {
		used := 0
		for _, expr := range expressions(t, path) {
			for _, name := range names.FindAllString(expr, -1) {
				used++
				if !exists(name) {
					t.Errorf("%s asks for %s, which there is not: %s", path, name, expr)
				}
			}
		}
		if used < least {
			t.Errorf("%s asks for %d metrics only", path, used)
		}
	}
}

// expressions returns the queries in a dashboard or a file of alerts. YAML
// contains JSON.
func expressions(t *testing.T, path string) (all []string) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/" + path)
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				if text, ok := e.(string); ok && key == "expr" {
					all = append(all, text)
				}
				walk(e)
			}
		}
	}
	walk(document)
	return all
}

// manyPartitions is a broker with 3,000 partitions, and a group that reads them
// all.
func manyPartitions(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.create("many", 3_000)
	for p := range int32(3_000) {
		w.client.Produce(w.ctx(), &kgo.Record{Topic: "many", Partition: p, Value: []byte("x")}, nil)
	}
	if err := w.client.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.commitMany("g", "many", 3_000)
	return w
}

// A scrape of 3,000 partitions that a group reads takes less than 50 ms, and less
// than 20 without single partitions, the client's part included: of CPU, so that
// others who use the machine do not count.
func TestScrapeIsQuick(t *testing.T) {
	w := manyPartitions(t)
	for path, limit := range map[string]time.Duration{"/metrics": 50 * time.Millisecond, "/metrics?partitions=no": 20 * time.Millisecond} {
		limit *= slowdown
		least := time.Hour
		for range 10 { // The broker has other work, too: the best of some tells what it costs.
			before := cpuTime(t)
			w.text(path)
			least = min(least, cpuTime(t)-before)
		}
		t.Logf("%s: %v", path, least)
		if least > limit {
			t.Errorf("a scrape of %s takes %v, want less than %v", path, least, limit)
		}
	}
}

// cpuTime is what this process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScrape is a scrape of a broker with 3,000 partitions, and a group
// that reads them all.
func BenchmarkScrape(b *testing.B) {
	w := manyPartitions(b)
	for _, path := range []string{"/metrics", "/metrics?partitions=no"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				b.SetBytes(int64(len(w.text(path))))
			}
		})
	}
}
