package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
)

// control is a controller that agrees to everything and says what a test wants.
type control struct {
	topics.Admin // What no test asks is not there.
	image        *metadata.Image
	warning      *string // With new partitions.
}

// Image implements topics.Control.
func (c *control) Image() *metadata.Image { return c.image }

// CreatePartitions implements topics.Admin.
func (c *control) CreatePartitions(
	context.Context, *kmsg.CreatePartitionsRequest,
) (*kmsg.CreatePartitionsResponse, error) {
	return &kmsg.CreatePartitionsResponse{Topics: []kmsg.CreatePartitionsResponseTopic{{
		Topic: "orders", ErrorMessage: c.warning,
	}}}, nil
}

// DescribeConfigs implements topics.Admin.
func (c *control) DescribeConfigs(
	context.Context, *kmsg.DescribeConfigsRequest,
) (*kmsg.DescribeConfigsResponse, error) {
	return &kmsg.DescribeConfigsResponse{Resources: make([]kmsg.DescribeConfigsResponseResource, 1)}, nil
}

// topicServices are services on a topic orders that no broker has a replica of.
func topicServices(t *testing.T, c *control) httpapi.Services {
	t.Helper()
	e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
	replicas := []kafka.BrokerID{1}
	image, _, err := (&metadata.Image{}).Apply(
		&metadata.ClusterRecord{ClusterID: "cluster", Level: 1},
		&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 1, Directories: [][16]byte{{1}}, Endpoint: e, Endpoints: []metadata.Endpoint{e},
		}},
		&metadata.TopicCreated{Name: "orders", ID: kafka.TopicID{7}, Partitions: []metadata.Partition{
			{Replicas: replicas, ISR: replicas, Leader: 1},
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	c.image = image
	s, broker := noServices(), config.Default()
	s.Control, s.Broker = c, func() *config.Broker { return broker }
	s.Topics = &topics.Directory{
		Control: c, Broker: s.Broker, Partitions: partition.NewTable(), Logger: slog.New(slog.DiscardHandler),
	}
	return s
}

// What there is to know about a change comes in warnings, and nothing else does:
// a controller need not say anything.
func TestWarnings(t *testing.T) {
	words, empty := "keys map elsewhere", ""
	for _, c := range []struct {
		warning *string
		want    string
	}{
		{&words, `"warnings":["keys map elsewhere"]`},
		{&empty, ""},
		{nil, ""},
	} {
		h := httpapi.New(&broker{}, topicServices(t, &control{warning: c.warning}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("PATCH", "/v1/topics/orders", strings.NewReader(`{"partitions":3}`)))
		got := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "warnings") {
			t.Errorf("%d %s, want %q", w.Code, got, c.want)
		}
	}
}
