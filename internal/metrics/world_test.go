package metrics_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
)

// world is a broker with a client.
type world struct {
	testing.TB
	server *strandline.Server
	client *kgo.Client
	admin  *kadm.Client
}

func newWorld(t testing.TB, settings map[string]string) *world {
	t.Helper()
	all := map[string]string{"offsets.topic.num.partitions": "2"}
	maps.Copy(all, settings)
	srv, err := strandline.Start(t.Context(), strandline.Config{HTTPListen: "127.0.0.1:0", Settings: all})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &world{t, srv, cl, kadm.NewClient(cl)}
}

// ctx ends before the test's patience does.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) create(topic string, partitions int32) {
	w.Helper()
	if _, err := w.admin.CreateTopic(w.ctx(), partitions, 1, nil, topic); err != nil {
		w.Fatal(err)
	}
}

func (w *world) produce(topic string, partition int32, n int, at time.Time) {
	w.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte("0123456789"), Timestamp: at}
	}
	if err := w.client.ProduceSync(w.ctx(), records...).FirstErr(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) commit(group, topic string, partition int32, offset int64) {
	w.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	if err := w.admin.CommitAllOffsets(w.ctx(), group, o); err != nil {
		w.Fatal(err)
	}
}

// commitMany commits offset 0 in all partitions.
func (w *world) commitMany(group, topic string, partitions int32) {
	w.Helper()
	o := kadm.Offsets{}
	for p := range partitions {
		o.Add(kadm.Offset{Topic: topic, Partition: p, At: 0, LeaderEpoch: -1})
	}
	if err := w.admin.CommitAllOffsets(w.ctx(), group, o); err != nil {
		w.Fatal(err)
	}
}

// post sends a produce request over HTTP.
func (w *world) post(topic, body string) {
	w.Helper()
	url := "http://" + w.server.HTTPAddr() + "/v1/topics/" + topic + "/produce"
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("POST %s: %s, %v: %s", url, resp.Status, err, text)
	}
}

// consume reads n records of a partition.
func (w *world) consume(topic string, partition int32, n int) {
	w.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.server.Addr()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {partition: kgo.NewOffset().AtStart()},
	}))
	if err != nil {
		w.Fatal(err)
	}
	defer cl.Close()
	for ctx := w.ctx(); n > 0; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			w.Fatal(err)
		}
		n -= fs.NumRecords()
	}
}

// text is what a GET of a path answers.
func (w *world) text(path string) string {
	w.Helper()
	resp, err := http.Get("http://" + w.server.HTTPAddr() + path)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("GET %s: %s, %v: %s", path, resp.Status, err, text)
	}
	return string(text)
}

// scraped is a scrape.
type scraped map[string]*dto.MetricFamily

func (w *world) scrape() scraped { return w.parse(w.text("/metrics")) }

func (w *world) parse(text string) scraped {
	w.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		w.Fatal(err)
	}
	return families
}

// value returns the value of a series, or the count of a histogram; labels are
// written as topic=orders. It is -1 if there is no such series.
func (s scraped) value(name string, labels ...string) float64 {
	for _, m := range s[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		slices.Sort(have)
		slices.Sort(labels)
		if !slices.Equal(have, labels) {
			continue
		}
		if h := m.GetHistogram(); h != nil {
			return float64(h.GetSampleCount())
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return -1
}

// want checks values that are written as name{label=value,...}.
func (w *world) want(s scraped, values map[string]float64) {
	w.Helper()
	for series, want := range values {
		name, rest, _ := strings.Cut(series, "{")
		var labels []string
		if rest != "" {
			labels = strings.Split(strings.TrimSuffix(rest, "}"), ",")
		}
		if got := s.value(name, labels...); got != want {
			w.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func (s scraped) names() string { return fmt.Sprint(slices.Sorted(maps.Keys(s))) }
