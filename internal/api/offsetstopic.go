package api

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// EnsureOffsetsTopic creates __consumer_offsets if it is not there, as the
// broker's settings want it. Somebody else may create it at the same time.
func EnsureOffsetsTopic(ctx context.Context, control Control, b *config.Broker) error {
	image := control.Image()
	if image.Topic(metadata.OffsetsTopic) != nil {
		return nil
	}
	segment, compact := strconv.Itoa(int(b.OffsetsTopicSegmentBytes)), "compact"
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions = metadata.OffsetsTopic, b.OffsetsTopicNumPartitions
	t.ReplicationFactor = min(b.OffsetsTopicReplicationLimit, int16(len(image.Brokers())))
	t.Configs = []kmsg.CreateTopicsRequestTopicConfig{
		{Name: "cleanup.policy", Value: &compact}, {Name: "segment.bytes", Value: &segment},
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
