package home_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/home"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// control is a controller that notes what it is asked for.
type control struct {
	image   *metadata.Image
	created []kmsg.CreateTopicsRequestTopic
}

func (c *control) Image() *metadata.Image { return c.image }

func (c *control) CreateTopics(
	_ context.Context, req *kmsg.CreateTopicsRequest,
) (*kmsg.CreateTopicsResponse, error) {
	c.created = append(c.created, req.Topics...)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	resp.Topics = append(resp.Topics, kmsg.NewCreateTopicsResponseTopic())
	return resp, nil
}

// brokers is an image with that many brokers.
func brokers(t *testing.T, n int) *metadata.Image {
	t.Helper()
	records := []metadata.Record{&metadata.ClusterRecord{ClusterID: "c", Level: metadata.CurrentLevel}}
	for i := range n {
		records = append(records, &metadata.BrokerRecord{Broker: metadata.Broker{
			ID: kafka.BrokerID(i + 1), Epoch: kafka.BrokerEpoch(i + 1),
			Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}},
		}})
	}
	image, _, err := new(metadata.Image).Apply(records...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// TestTopicsWaitForTheirReplicas: a client that is there before the other brokers of a new cluster must not have an
// internal topic made with one replica, which it would keep.
func TestTopicsWaitForTheirReplicas(t *testing.T) {
	type ensure func(context.Context, home.Control, *config.Broker, int) error
	for name, topic := range map[string]ensure{
		metadata.OffsetsTopic: groups.EnsureTopic, metadata.TransactionsTopic: transactions.EnsureTopic,
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				brokers, voters int
				limit           int16
				want            int16 // 0 for not yet.
			}{
				{brokers: 1, voters: 1, limit: 3, want: 1},
				{brokers: 1, voters: 3, limit: 3},
				{brokers: 2, voters: 3, limit: 3},
				{brokers: 3, voters: 3, limit: 3, want: 3},
				{brokers: 5, voters: 3, limit: 3, want: 3},
				{brokers: 4, voters: 5, limit: 3, want: 3},
				{brokers: 2, voters: 1, limit: 3, want: 2},
				{brokers: 1, voters: 3, limit: 1, want: 1},
			} {
				f := &control{image: brokers(t, c.brokers)}
				settings := &config.Broker{OffsetsTopicReplicationLimit: c.limit, TransactionStateReplicationLimit: c.limit}
				err := topic(t.Context(), f, settings, c.voters)
				var coded *kafka.Error
				switch {
				case c.want == 0:
					if !errors.As(err, &coded) || coded.Code != kafka.ErrCoordinatorNotAvailable || len(f.created) > 0 {
						t.Errorf("%+v: %v, created %+v", c, err, f.created)
					}
				case err != nil || len(f.created) != 1 || f.created[0].ReplicationFactor != c.want || f.created[0].Topic != name:
					t.Errorf("%+v: %v, created %+v", c, err, f.created)
				}
			}
		})
	}
}
