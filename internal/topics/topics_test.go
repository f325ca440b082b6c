package topics_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
)

// control is a controller that refuses what it is asked for.
type control struct {
	image *metadata.Image
	asked []string
}

func (c *control) Image() *metadata.Image { return c.image }

func (c *control) CreateTopics(_ context.Context, req *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	resp := kmsg.NewPtrCreateTopicsResponse()
	for _, t := range req.Topics {
		c.asked = append(c.asked, t.Topic)
		message := "not today"
		resp.Topics = append(resp.Topics, kmsg.CreateTopicsResponseTopic{
			Topic: t.Topic, ErrorCode: int16(kafka.ErrPolicyViolation), ErrorMessage: &message,
		})
	}
	return resp, nil
}

// newDirectory has topic orders, of three partitions, the middle one without a
// leader.
func newDirectory(t *testing.T, broker *config.Broker) (*topics.Directory, *control) {
	t.Helper()
	replicas := []kafka.BrokerID{1}
	led := metadata.Partition{Replicas: replicas, ISR: replicas, Leader: 1}
	unled := led
	unled.Leader = kafka.NoBroker
	e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
	c := &control{}
	var err error
	c.image, _, err = (&metadata.Image{}).Apply(
		&metadata.ClusterRecord{ClusterID: "cluster", Level: 1},
		&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 1, Directories: [][16]byte{{1}}, Endpoint: e, Endpoints: []metadata.Endpoint{e},
		}},
		&metadata.TopicCreated{Name: "orders", ID: kafka.TopicID{1}, Partitions: []metadata.Partition{led, unled, led}},
		&metadata.TopicCreated{Name: metadata.OffsetsTopic, ID: kafka.TopicID{2}, Partitions: []metadata.Partition{led}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return &topics.Directory{
		Control: c, Broker: func() *config.Broker { return broker }, Partitions: partition.NewTable(),
		Logger: slog.New(slog.DiscardHandler), EnsureOffsets: func(context.Context) error { return nil },
	}, c
}

func TestViews(t *testing.T) {
	d, _ := newDirectory(t, config.Default())
	v, code := d.ByName("orders")
	if code != kafka.ErrNone || v.Name != "orders" || v.Writable() != nil {
		t.Fatalf("%+v, %s", v, code)
	}
	if again, _ := d.ByID(kafka.TopicID{1}); again != v {
		t.Error("a view is made anew though nothing has changed")
	}
	var turns []int32
	for range 6 {
		turns = append(turns, v.NextInTurn())
	}
	for _, i := range turns {
		if i == 1 {
			t.Errorf("a partition without a leader had its turn: %v", turns)
		}
	}
	if code, message := v.NoPartition(3); code != kafka.ErrUnknownTopicOrPartition || !strings.Contains(message, "no partition 3") {
		t.Errorf("%s %s", code, message)
	}
	if code, _ := v.NoPartition(0); code != kafka.ErrNotLeaderOrFollower {
		t.Errorf("a partition that is elsewhere: %s", code)
	}
	if v, code := d.ByName("nope"); code != kafka.ErrUnknownTopicOrPartition || v.Name != "nope" {
		t.Errorf("%+v, %s", v, code)
	}
	if _, code := d.ByID(kafka.TopicID{9}); code != kafka.ErrUnknownTopicID {
		t.Error(code)
	}
	internal, _ := d.ByName(metadata.OffsetsTopic)
	if err := internal.Writable(); err == nil {
		t.Error("an internal topic is writable")
	}
	for name, want := range map[string]string{"order": "orders", "__consumer_offset": "", strings.Repeat("x", 200): ""} {
		if got := d.Nearest(name); got != want {
			t.Errorf("nearest to %s: %q", name, got)
		}
	}
}

// A topic that is deleted while somebody asks for it leaves nothing behind.
func TestDeletedMeanwhile(t *testing.T) {
	d, c := newDirectory(t, config.Default())
	broker := d.Broker
	d.Broker = func() *config.Broker { // Between the look at the image and what is kept of it.
		image, _, err := c.image.Apply(&metadata.TopicDeleted{ID: kafka.TopicID{1}})
		if err != nil {
			t.Fatal(err)
		}
		c.image = image
		d.Forget(kafka.TopicID{1})
		return broker()
	}
	if _, code := d.ByName("orders"); code != kafka.ErrNone {
		t.Error(code)
	}
	if n := d.Kept(); n != 0 {
		t.Errorf("%d views kept", n)
	}
}

func TestAutoCreate(t *testing.T) {
	d, c := newDirectory(t, config.Default())
	refused, err := d.AutoCreate(t.Context(), "orders", "new", "new", "", "bad name", metadata.OffsetsTopic)
	if err != nil || len(refused) != 1 || refused["new"].Code != kafka.ErrPolicyViolation || refused["new"].Message != "not today" {
		t.Errorf("%v, %v", refused, err)
	}
	if len(c.asked) != 1 || c.asked[0] != "new" {
		t.Errorf("asked for %v", c.asked)
	}
	off := *config.Default()
	off.AutoCreateTopicsEnable = false
	d, c = newDirectory(t, &off)
	if refused, err := d.AutoCreate(t.Context(), "new"); err != nil || refused != nil || len(c.asked) != 0 {
		t.Errorf("%v, %v, asked for %v", refused, err, c.asked)
	}
}
