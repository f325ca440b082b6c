package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func createRequest(names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
		req.Topics = append(req.Topics, t)
	}
	return req
}

func create(t testing.TB, plane *controlplane.ControlPlane, names ...string) {
	t.Helper()
	resp, err := plane.CreateTopics(t.Context(), createRequest(names...))
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range resp.Topics {
		if topic.ErrorCode != 0 {
			t.Fatalf("topic %s: %v: %s", topic.Topic, kafka.Code(topic.ErrorCode), *topic.ErrorMessage)
		}
	}
}

func remove(t testing.TB, plane *controlplane.ControlPlane, name string) {
	t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{name}
	resp, err := plane.DeleteTopics(t.Context(), req)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("delete %s: %v, %+v", name, err, resp)
	}
}

func alter(t testing.TB, plane *controlplane.ControlPlane, kind kmsg.ConfigResourceType, name, option, value string) {
	t.Helper()
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = option, &value
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	r.Configs = append(r.Configs, c)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	resp, err := plane.IncrementalAlterConfigs(t.Context(), req)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%s=%s: %v, %+v", option, value, err, resp)
	}
}

// news writes down what watchers are told.
type news struct{ lines []string }

func (n *news) told(old, image *metadata.Image, d metadata.Delta) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d->%d", old.TopicCount(), image.TopicCount())
	for _, c := range d.Topics {
		switch {
		case c.Old == nil:
			fmt.Fprintf(&b, " +%s", c.New.Name)
		case c.New == nil:
			fmt.Fprintf(&b, " -%s", c.Old.Name)
		default:
			fmt.Fprintf(&b, " ~%s", c.New.Name)
		}
	}
	for _, r := range d.Configs {
		fmt.Fprintf(&b, " config:%s", r.Name)
	}
	n.lines = append(n.lines, b.String())
}

func (n *news) want(t *testing.T, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, n.lines); diff != "" {
		t.Errorf("watchers were told (-want +got):\n%s", diff)
	}
	n.lines = nil
}

// A first start founds the cluster; a restart finds it, and is told all at once.
func TestBoot(t *testing.T) {
	plane, first := newPlane(t, nil)
	var told news
	plane.OnImage(told.told)
	id := boot(t, plane, registration)
	if len(id) != 22 || plane.Image().ClusterID() != id {
		t.Errorf("cluster id %q", id)
	}
	create(t, plane, "a", "b")
	create(t, plane, "gone")
	remove(t, plane, "gone")
	told.want(t, "0->0", "0->2 +a +b", "2->3 +gone", "3->2 -gone")

	again, l := newPlane(t, nil)
	again.OnImage(told.told)
	for i, entry := range first.log {
		if err := again.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	l.log = first.log
	told.want(t)
	clean := registration
	clean.Clean, clean.ClusterID = true, id
	if got := boot(t, again, clean); got != id {
		t.Errorf("cluster %s became %s", id, got)
	}
	told.want(t, "0->2 -gone +a +b")
	if e := again.Image().Topic("a").Partitions[0].LeaderEpoch; e != 0 {
		t.Errorf("a clean restart raised the leader epoch to %d", e)
	}

	crashed, l := newPlane(t, nil)
	snapshot, err := again.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := crashed.Restore(7, snapshot); err != nil {
		t.Fatal(err)
	}
	l.log = [][]byte{nil}
	crashed.OnImage(told.told)
	boot(t, crashed, registration)
	told.want(t, "0->2 +a +b")
	if e := crashed.Image().Topic("a").Partitions[0].LeaderEpoch; e != 1 {
		t.Errorf("after a crash the leader epoch is %d", e)
	}
}

// Who waits for an image goes on when its watchers know it: a broker that has joined looks for files of partitions that
// nobody knows of, and they are those who know.
func TestWaitingIsForTheWatchers(t *testing.T) {
	plane, _ := newPlane(t, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	has := func(image *metadata.Image) bool { return image.Topic("a") != nil }
	seen := 0
	plane.OnImage(func(_, image *metadata.Image, _ metadata.Delta) {
		if has(image) {
			seen++
			if err := plane.Await(over, has); !has(plane.Image()) || err == nil {
				t.Errorf("the wait ends while a watcher is being told: %v", err)
			}
		}
	})
	boot(t, plane, registration)
	create(t, plane, "a")
	if err := plane.Await(over, has); err != nil || seen != 1 {
		t.Errorf("when the watcher knows it: %v, seen %d times", err, seen)
	}
}

func TestBootRefusals(t *testing.T) {
	plane, _ := newPlane(t, nil)
	boot(t, plane, registration)
	other := registration
	other.ClusterID = "other"
	if _, err := plane.Boot(t.Context(), other); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("another cluster's data directory: %v", err)
	}
	var refused *kafka.Error
	if _, err := plane.Boot(t.Context(), controlplane.Registration{}); !errors.As(err, &refused) {
		t.Errorf("no address: %v", err)
	}
	if _, err := controlplane.New(controlplane.Options{Static: map[string]string{"nod.id": "1"}}); err == nil {
		t.Error("a wrong option is taken")
	}
}

// Decisions see what was decided before them; nobody else sees it before it is
// committed; and what is lost is forgotten.
func TestStaging(t *testing.T) {
	plane, l := newPlane(t, nil)
	boot(t, plane, registration)
	l.hold = true
	if _, err := plane.CreateTopics(t.Context(), createRequest("a")); !errors.Is(err, errLost) {
		t.Fatalf("a: %v", err)
	}
	if plane.Image().Topic("a") != nil {
		t.Error("a is visible before it is committed")
	}
	snapshot, _ := plane.Snapshot()
	if image, err := metadata.DecodeSnapshot(snapshot); err != nil || image.Topic("a") != nil {
		t.Errorf("a snapshot has what is not committed: %v", err)
	}
	l.hold = false
	resp, err := plane.CreateTopics(t.Context(), createRequest("a"))
	if err != nil || kafka.Code(resp.Topics[0].ErrorCode) != kafka.ErrTopicAlreadyExists {
		t.Errorf("a decision does not see the one before: %v, %+v", err, resp)
	}

	l.lose()
	create(t, plane, "a") // It is free again.
	if plane.Image().Topic("a") == nil {
		t.Error("a is not there")
	}
	// As a follower, the plane takes what others decided.
	other := metadata.AppendRecords(nil, &metadata.TopicDeleted{ID: plane.Image().Topic("a").ID})
	if err := plane.Apply(99, other); err != nil || plane.Image().Topic("a") != nil {
		t.Errorf("another node's decision: %v", err)
	}
	create(t, plane, "a")
	l.hold = true
	_, _ = plane.CreateTopics(t.Context(), createRequest("b"))
	if err := plane.Apply(100, other); err == nil {
		t.Error("another entry than the staged one is taken")
	}
}

func TestEntriesThatCannotBe(t *testing.T) {
	plane, _ := newPlane(t, nil)
	boot(t, plane, registration)
	unfit := metadata.AppendRecords(nil, &metadata.TopicDeleted{ID: kafka.TopicID{1}})
	var format *metadata.FormatError
	var replay *metadata.ReplayError
	if err := plane.Apply(9, []byte("garbage")); !errors.As(err, &format) {
		t.Errorf("garbage: %v", err)
	}
	if err := plane.Stage([]byte{2}); !errors.As(err, &format) {
		t.Errorf("garbage staged: %v", err)
	}
	if err := plane.Apply(9, unfit); !errors.As(err, &replay) {
		t.Errorf("a record that does not fit: %v", err)
	}
	if err := plane.Restore(7, []byte("garbage")); !errors.As(err, &format) {
		t.Errorf("a snapshot of garbage: %v", err)
	}
}

// A change of the broker's configuration is in effect when the answer is there,
// and those who watch see it.
func TestBrokerConfig(t *testing.T) {
	plane, _ := newPlane(t, map[string]string{"num.partitions": "2"})
	var told news
	boot(t, plane, registration)
	plane.OnImage(func(old, image *metadata.Image, d metadata.Delta) {
		told.told(old, image, d)
		if n := plane.BrokerConfig().NumPartitions; n != 3 {
			t.Errorf("a watcher sees num.partitions=%d", n)
		}
	})
	if n := plane.BrokerConfig().NumPartitions; n != 2 {
		t.Errorf("at start: %d", n)
	}
	alter(t, plane, kmsg.ConfigResourceTypeBroker, "", "num.partitions", "3")
	told.want(t, "0->0 config:")
	req := createRequest("a")
	req.Topics[0].NumPartitions = -1
	if _, err := plane.CreateTopics(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if n := len(plane.Image().Topic("a").Partitions); n != 3 {
		t.Errorf("a topic has %d partitions", n)
	}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, "1", []string{"num.partitions"}
	describe.Resources = append(describe.Resources, r)
	resp, err := plane.DescribeConfigs(t.Context(), describe)
	if err != nil || *resp.Resources[0].Configs[0].Value != "3" {
		t.Errorf("described: %v, %+v", err, resp)
	}
}

// What another version stored and this one does not take leaves the broker as it
// was.
func TestBrokerConfigOfAnotherVersion(t *testing.T) {
	plane, _ := newPlane(t, nil)
	boot(t, plane, registration)
	entry := metadata.AppendRecords(nil, &metadata.ConfigChanged{
		Resource: metadata.Resource{Type: metadata.BrokerResource, Name: "1"},
		Set:      map[string]string{"from.the.future": "1", "num.partitions": "9"},
	})
	if err := plane.Apply(9, entry); err != nil {
		t.Fatal(err)
	}
	if n := plane.BrokerConfig().NumPartitions; n != 1 {
		t.Errorf("num.partitions is %d", n)
	}
	create(t, plane, "a")
}

func TestProducerIDs(t *testing.T) {
	plane, l := newPlane(t, nil)
	boot(t, plane, registration)
	before := len(l.log)
	for want := range kafka.ProducerID(2500) {
		got, err := plane.NextProducerID(t.Context())
		if err != nil || got != want {
			t.Fatalf("%d: %v, want %d", got, err, want)
		}
	}
	if blocks := len(l.log) - before; blocks != 3 {
		t.Errorf("%d entries for 2500 ids", blocks)
	}
	again, l2 := newPlane(t, nil)
	for i, entry := range l.log {
		if err := again.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	l2.log = l.log
	boot(t, again, registration)
	if got, err := again.NextProducerID(t.Context()); err != nil || got != 3000 {
		t.Errorf("after a restart: %d, %v", got, err)
	}
	l2.hold = true
	for range 999 {
		if _, err := again.NextProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := again.NextProducerID(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("without a quorum: %d, %v", got, err)
	}
}

// A caller whose context ends does not wait for a block that another fetches.
func TestProducerIDWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane, l := newPlane(t, nil)
		boot(t, plane, registration)
		never := make(stuck)
		plane.Attach(never)
		go func() { _, _ = plane.NextProducerID(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := plane.NextProducerID(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(never)
		_ = l
	})
}

// stuck is a quorum that never answers.
type stuck chan struct{}

func (s stuck) Do(context.Context, func() ([]byte, error)) error {
	<-s
	return errLost
}

// Topic ids never begin with a dash, and the source of random numbers is used.
func TestTopicIDs(t *testing.T) {
	dash := bytes.Repeat([]byte{0xf8}, 16) // "-Pj4..." in base64.
	good := bytes.Repeat([]byte{7}, 16)
	random := bytes.NewReader(bytes.Join([][]byte{good, good, dash, good, good}, nil))
	plane, err := controlplane.New(controlplane.Options{Self: 1, Random: io.MultiReader(random)})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{plane: plane}
	plane.Attach(l)
	boot(t, plane, registration)
	create(t, plane, "a")
	if id := plane.Image().Topic("a").ID.String(); strings.HasPrefix(id, "-") {
		t.Errorf("topic id %s", id)
	}
}

// The control plane and the quorum together: create, change, restart.
func TestOnQuorum(t *testing.T) {
	fs := memfs.New()
	var id string
	var want []byte
	for start := range 3 {
		func() {
			plane, stop := startOnQuorum(t, fs)
			defer stop()
			got := boot(t, plane, registration)
			if start == 0 {
				id = got
			}
			if got != id {
				t.Errorf("cluster %s became %s", id, got)
			}
			if start > 0 && plane.Image().Topic("topic-0-5") == nil {
				t.Error("a topic is gone after a restart")
			}
			for i := range 10 {
				create(t, plane, fmt.Sprintf("topic-%d-%d", start, i))
			}
			alter(t, plane, kmsg.ConfigResourceTypeTopic, fmt.Sprintf("topic-%d-1", start), "retention.ms", "1")
			remove(t, plane, fmt.Sprintf("topic-%d-2", start))
			if _, err := plane.NextProducerID(t.Context()); err != nil {
				t.Error(err)
			}
			want, _ = plane.Snapshot()
		}()
	}
	plane, stop := startOnQuorum(t, fs)
	defer stop()
	got, _ := plane.Snapshot()
	if !bytes.Equal(got, want) {
		t.Error("the image after a restart is another")
	}
}

// startOnQuorum runs a control plane on a quorum of one.
func startOnQuorum(t testing.TB, fs *memfs.FS) (plane *controlplane.ControlPlane, stop func()) {
	t.Helper()
	plane, err := controlplane.New(controlplane.Options{Self: 1})
	if err != nil {
		t.Fatal(err)
	}
	q, err := quorum.Open(quorum.Options{
		FS: fs, Dir: "metadata", NodeID: 1, Voters: []kafka.BrokerID{1}, Machine: plane,
	})
	if err != nil {
		t.Fatal(err)
	}
	plane.Attach(q)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }() // Ends in stop.
	<-q.Ready()
	return plane, func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkCreateTopics(b *testing.B) {
	plane, stop := startOnQuorum(b, memfs.New())
	defer stop()
	boot(b, plane, registration)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("topic-%d-%d", n, i)
		}
		n++
		create(b, plane, names...)
	}
	b.ReportMetric(float64(plane.Image().TopicCount()), "topics")
}
