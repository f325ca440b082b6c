// Package home is the internal topic that a coordinator's machines live on, as
// requests see it: which of its partitions an id belongs to, who leads that, and how
// the topic comes to be.
//
// It may be called from any goroutine. Deliberately absent: what lives there (packages
// groups and transactions), and how it is hosted (package coordinator).
package home

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// PartitionOf returns the partition of a topic that an id belongs to, and the broker
// that leads it, which may be kafka.NoBroker.
func PartitionOf(image *metadata.Image, topic, id string) (int32, kafka.BrokerID, error) {
	t := image.Topic(topic)
	if t == nil {
		return 0, kafka.NoBroker, &kafka.Error{
			Code:    kafka.ErrCoordinatorNotAvailable,
			Message: "topic " + topic + " is being created: try again",
		}
	}
	p := coordinator.PartitionOf(id, int32(len(t.Partitions)))
	return p, t.Partitions[p].Leader, nil
}

// BrokerOf returns the broker that leads the partition of an id, or says that whose, "the
// group's", has no leader. Where this broker is inDoubt of that it is returned with
// coordinator.ErrInDoubt. The topic is there, or was created a moment ago.
func BrokerOf(
	image *metadata.Image, topic, id, whose string, inDoubt func(partition int32) bool,
) (kafka.BrokerID, error) {
	p, leader, err := PartitionOf(image, topic, id)
	switch {
	case err != nil:
		return kafka.NoBroker, err
	case leader == kafka.NoBroker:
		return kafka.NoBroker, &kafka.Error{
			Code:    kafka.ErrCoordinatorNotAvailable,
			Message: whose + " partition has no leader: try again",
		}
	case inDoubt(p):
		return leader, coordinator.ErrInDoubt
	}
	return leader, nil
}

// Control is the way to the controller.
type Control interface {
	Image() *metadata.Image
	CreateTopics(context.Context, *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error)
}

// Topic is an internal topic as the broker's settings want it.
type Topic struct {
	Name       string
	Partitions int32
	// Replicas is how many it has, if there are as many brokers.
	Replicas int16
	// Configs returns its settings, names and values by turns, when it has so many
	// replicas.
	Configs func(replicas int16) []string
}

// Ensure creates a topic if it is not there. Somebody else may create it at the same
// time.
//
// A cluster whose brokers start together is asked for it before all of them have
// registered, and what is committed must not hang on the first of them for ever. So
// it is not created before as many are there as there are voters, if it is to have
// so many replicas: at the first start all voters come anyway.
func Ensure(ctx context.Context, control Control, want Topic, voters int) error {
	image := control.Image()
	if image.Topic(want.Name) != nil {
		return nil
	}
	brokers := len(image.Brokers())
	replicas := min(int(want.Replicas), max(brokers, voters))
	if brokers < replicas {
		return &kafka.Error{
			Code: kafka.ErrCoordinatorNotAvailable,
			Message: fmt.Sprintf("%s is to have %d replicas, and %d of %d brokers have registered: it is created "+
				"when the others have", want.Name, replicas, brokers, voters),
		}
	}
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = want.Name, want.Partitions, int16(replicas)
	configs := want.Configs(t.ReplicationFactor)
	for i := 0; i < len(configs); i += 2 {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: configs[i], Value: &configs[i+1]})
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = req.MaxVersion()
	req.Topics = append(req.Topics, t)
	resp, err := control.CreateTopics(ctx, req)
	if err != nil {
		return err
	}
	created := &resp.Topics[0]
	switch code := kafka.Code(created.ErrorCode); code {
	case kafka.ErrNone, kafka.ErrTopicAlreadyExists:
		return nil
	default:
		refusal := &kafka.Error{Code: code}
		if created.ErrorMessage != nil {
			refusal.Message = *created.ErrorMessage
		}
		return refusal
	}
}
