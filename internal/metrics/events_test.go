package metrics_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/metrics"
)

// heard notes what was passed on.
type heard struct{ what []string }

func (h *heard) Recovered(commitlog.RecoveredLog) { h.what = append(h.what, "recovered") }
func (h *heard) Corrupt(kafka.TopicIDPartition, *commitlog.CorruptionError) {
	h.what = append(h.what, "corrupt")
}

func (h *heard) Deleted(kafka.TopicIDPartition, int, kafka.Offset) {
	h.what = append(h.what, "deleted")
}

func (h *heard) Failed(kafka.TopicIDPartition, error) { h.what = append(h.what, "failed") }

func (h *heard) DiskFull(kafka.TopicIDPartition, error) { h.what = append(h.what, "full") }

func (h *heard) Mended(kafka.TopicIDPartition, commitlog.MendedHole) {
	h.what = append(h.what, "mended")
}

func (h *heard) ReadFailed(kafka.TopicIDPartition, error) { h.what = append(h.what, "unread") }

func (h *heard) Alarm(string, error) { h.what = append(h.what, "alarm") }

func (h *heard) Problem(string, error) { h.what = append(h.what, "problem") }

func (h *heard) Cleaned(kafka.TopicIDPartition, cleaner.Stats) { h.what = append(h.what, "cleaned") }

func (h *heard) Uncleanable(kafka.TopicIDPartition, error) { h.what = append(h.what, "uncleanable") }

// Events are counted and still told to whoever listened before.
func TestEventsAreCountedAndPassedOn(t *testing.T) {
	var e metrics.Events
	var next heard
	storage, compaction := e.Storage(&next), e.Cleaner(&next)
	id := kafka.TopicIDPartition{}
	storage.Recovered(commitlog.RecoveredLog{BytesCut: 7})
	storage.Corrupt(id, nil)
	storage.Mended(id, commitlog.MendedHole{})
	storage.Deleted(id, 3, 0)
	storage.Failed(id, nil)
	storage.DiskFull(id, nil)
	storage.ReadFailed(id, nil)
	storage.Alarm("", nil)
	storage.Problem("", nil)
	compaction.Cleaned(id, cleaner.Stats{BytesBefore: 100, BytesAfter: 40})
	compaction.Uncleanable(id, nil)
	compaction.Failed(id, nil)
	want := "recovered corrupt mended deleted failed full unread alarm problem cleaned uncleanable failed"
	if got := strings.Join(next.what, " "); got != want {
		t.Errorf("passed on: %s, want %s", got, want)
	}
	for name, want := range map[string]uint64{
		"strandline_storage_logs_recovered_total": 1, "strandline_storage_torn_bytes_total": 7,
		"strandline_storage_corruptions_total": 1, "strandline_storage_segments_deleted_total": 3,
		"strandline_storage_mended_total":    1,
		"strandline_storage_disk_full_total": 1, "strandline_storage_read_failures_total": 1,
		"strandline_storage_alarms_total":   1,
		"strandline_storage_failures_total": 1, "strandline_storage_problems_total": 1,
		"strandline_cleaner_passes_total done": 1, "strandline_cleaner_passes_total failed": 1,
		"strandline_cleaner_passes_total refused": 1, "strandline_cleaner_reclaimed_bytes_total": 60,
	} {
		if got := e.Count(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// A change of the ISR counts on the leader, once for each direction.
func TestISRChanges(t *testing.T) {
	topic := func(leader kafka.BrokerID, isrs ...[]kafka.BrokerID) *metadata.Topic {
		t := &metadata.Topic{Name: "t"}
		for _, isr := range isrs {
			t.Partitions = append(t.Partitions, metadata.Partition{
				Replicas: []kafka.BrokerID{1, 2, 3}, ISR: isr, Leader: leader,
			})
		}
		return t
	}
	type ids = []kafka.BrokerID
	for _, c := range []struct {
		name             string
		before, after    *metadata.Topic
		shrinks, expands uint64
	}{
		{"created", nil, topic(1, ids{1, 2, 3}), 0, 0},
		{"deleted", topic(1, ids{1, 2, 3}), nil, 0, 0},
		{"same", topic(1, ids{1, 2}), topic(1, ids{2, 1}), 0, 0},
		{"shrunk", topic(1, ids{1, 2, 3}), topic(1, ids{1, 3}), 1, 0},
		{"grown", topic(1, ids{1}), topic(1, ids{1, 2}), 0, 1},
		{"replaced", topic(1, ids{1, 2}), topic(1, ids{1, 3}), 1, 1},
		{"led elsewhere", topic(1, ids{1, 2}), topic(2, ids{2}), 0, 0},
		{"more partitions", topic(1, ids{1, 2}), topic(1, ids{1}, ids{1, 2}), 1, 0},
	} {
		var e metrics.Events
		e.Follow(1, metadata.Delta{Topics: []metadata.TopicChange{{Old: c.before, New: c.after}}})
		if s, x := e.Count("shrink"), e.Count("expand"); s != c.shrinks || x != c.expands {
			t.Errorf("%s: %d shrinks and %d expansions, want %d and %d", c.name, s, x, c.shrinks, c.expands)
		}
	}
}

// An election counts on the broker that it made the leader, as unclean where that was
// neither in sync nor eligible.
func TestElections(t *testing.T) {
	was := metadata.Partition{
		Replicas: []kafka.BrokerID{1, 2, 3}, ISR: []kafka.BrokerID{2}, Leader: 2, Eligible: []kafka.BrokerID{3},
	}
	elected := func(leader kafka.BrokerID) metadata.Partition {
		p := was
		p.Leader, p.ISR, p.Eligible, p.LeaderEpoch = leader, []kafka.BrokerID{leader}, nil, 1
		return p
	}
	for _, c := range []struct {
		self           kafka.BrokerID
		after          metadata.Partition
		clean, unclean uint64
	}{
		{1, elected(1), 0, 1},
		{3, elected(3), 1, 0},
		{2, elected(3), 0, 0},
		{2, elected(2), 0, 0},
		{3, elected(kafka.NoBroker), 0, 0},
	} {
		var e metrics.Events
		e.Follow(c.self, metadata.Delta{Topics: []metadata.TopicChange{{
			Old: &metadata.Topic{Name: "t", Partitions: []metadata.Partition{was}},
			New: &metadata.Topic{Name: "t", Partitions: []metadata.Partition{c.after}},
		}}})
		const name = "strandline_leader_elections_total"
		if clean, unclean := e.Count(name+" clean"), e.Count(name+" unclean"); clean != c.clean || unclean != c.unclean {
			t.Errorf("broker %d, leader %d: %d clean and %d unclean", c.self, c.after.Leader, clean, unclean)
		}
	}
}

// Streams go through the counter as they are written, and a handler that panics
// is counted too.
func TestHTTPCounterIsTransparent(t *testing.T) {
	var h metrics.HTTP
	mux := http.NewServeMux()
	step := make(chan struct{})
	mux.HandleFunc("GET /stream/{name}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("one\n"))
		w.(http.Flusher).Flush()
		<-step
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write([]byte("two\n"))
	})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	srv := httptest.NewServer(h.Wrap(mux))
	defer srv.Close()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, srv.URL+"/stream/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "one" {
		t.Errorf("first line %q", lines.Text())
	}
	close(step)
	if !lines.Scan() || lines.Text() != "two" {
		t.Errorf("second line %q", lines.Text())
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	once := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // It tries again otherwise.
	if resp, err := once.Get(srv.URL + "/panic"); err == nil {
		t.Errorf("a handler that panicked answered %s", resp.Status)
	}
	srv.Close() // Its handlers have returned now.
	for route, want := range map[string]uint64{"GET /stream/{name}": 1, "GET /panic": 1} {
		if got := h.Requests(route); got != want {
			t.Errorf("%s: %d requests, want %d", route, got, want)
		}
	}
}

// The option stands in the table of options.
func TestSettingExists(t *testing.T) {
	if err := config.Known(config.BrokerScope, "metrics.partition.series.max"); err != nil {
		t.Error(err)
	}
}
