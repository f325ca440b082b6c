package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// maxAutoCreated is how many topics one Metadata request may create. The rest are
// answered with LEADER_NOT_AVAILABLE, as those that are being created are: a
// client that means it asks again, and gets the next ones.
const maxAutoCreated = 100

// maybeAutoCreate creates the topics that a Metadata request names and that are
// not there, where both the broker (auto.create.topics.enable) and the client
// want it. It returns why some were not, by name: a client that is told so gives
// up at once instead of asking until its time is over.
func (s *Services) maybeAutoCreate(ctx context.Context, req *kmsg.MetadataRequest) map[string]kafka.Code {
	if !s.Broker().AutoCreateTopicsEnable || req.Version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = create.MaxVersion()
	asked, later := map[string]bool{}, 0
	refused := map[string]kafka.Code{}
	for _, t := range req.Topics {
		name := text(t.Topic)
		switch {
		case name == "" || asked[name] || s.image().Topic(name) != nil || metadata.CheckTopicName(name) != nil:
		case metadata.IsInternal(name):
			// With settings of its own, and by whom it belongs to.
			if name == metadata.OffsetsTopic {
				if err := s.Groups.EnsureTopic(ctx); err != nil {
					s.Logger.Warn("internal topic not created", "topic", name, "error", err)
				}
			}
		case len(create.Topics) == maxAutoCreated:
			later++
			refused[name] = kafka.ErrLeaderNotAvailable
		default:
			asked[name] = true
			ct := kmsg.NewCreateTopicsRequestTopic()
			ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, -1, -1
			create.Topics = append(create.Topics, ct)
		}
	}
	if later > 0 {
		s.Logger.Warn("a client asked for more topics than one request may create: the rest are created when it "+
			"asks again; create topics with CreateTopics, or set auto.create.topics.enable=false",
			"created", maxAutoCreated, "left", later)
	}
	if len(create.Topics) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	resp, err := s.Control.CreateTopics(ctx, create)
	if err != nil {
		s.Logger.Warn("topics a client asked for were not created", "error", err)
		return refused
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		code := kafka.Code(t.ErrorCode)
		if code == kafka.ErrNone || code == kafka.ErrTopicAlreadyExists {
			continue
		}
		s.Logger.Warn("topic a client asked for was not created", "topic", t.Topic, "error", text(t.ErrorMessage))
		refused[t.Topic] = code
	}
	return refused
}

// text returns what a nullable string says.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
