package topics

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// maxAutoCreated is how many topics one request may create. The rest are answered
// with LEADER_NOT_AVAILABLE, as those that are being created are: a client that
// means it asks again, and gets the next ones.
const maxAutoCreated = 100

// AutoCreate creates those of the topics that are not there, where the broker
// wants that (auto.create.topics.enable), with its defaults. It returns why some
// were not, by name: a client that is told so gives up at once instead of asking
// until its time is over. The error is one of the controller's: nothing is known.
//
// Names that are no topic's are left to the caller.
func (d *Directory) AutoCreate(ctx context.Context, names ...string) (map[string]*kafka.Error, error) {
	if !d.Broker().AutoCreateTopicsEnable {
		return nil, nil
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = create.MaxVersion()
	asked, refused := map[string]bool{}, map[string]*kafka.Error{}
	later := 0
	for _, name := range names {
		switch {
		case name == "" || asked[name] || d.Control.Image().Topic(name) != nil || metadata.CheckTopicName(name) != nil:
		case metadata.IsInternal(name):
			// With settings of its own, and by whom it belongs to.
			if name == metadata.OffsetsTopic {
				if err := d.EnsureOffsets(ctx); err != nil {
					d.Logger.Warn("internal topic not created", "topic", name, "error", err)
				}
			}
		case len(create.Topics) == maxAutoCreated:
			later++
			refused[name] = &kafka.Error{Code: kafka.ErrLeaderNotAvailable, Message: "it is created when you ask again"}
		default:
			asked[name] = true
			ct := kmsg.NewCreateTopicsRequestTopic()
			ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, -1, -1
			create.Topics = append(create.Topics, ct)
		}
	}
	if later > 0 {
		d.Logger.Warn("a client asked for more topics than one request may create: the rest are created when it "+
			"asks again; create topics with CreateTopics, or set auto.create.topics.enable=false",
			"created", maxAutoCreated, "left", later)
	}
	if len(create.Topics) == 0 {
		return nil, nil
	}
	resp, err := d.Control.CreateTopics(ctx, create)
	if err != nil {
		d.Logger.Warn("topics a client asked for were not created", "error", err)
		return refused, err
	}
	d.noteRefused(resp, refused)
	return refused, nil
}

func (d *Directory) noteRefused(resp *kmsg.CreateTopicsResponse, refused map[string]*kafka.Error) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		code := kafka.Code(t.ErrorCode)
		if code == kafka.ErrNone || code == kafka.ErrTopicAlreadyExists {
			continue
		}
		why := &kafka.Error{Code: code}
		if t.ErrorMessage != nil {
			why.Message = *t.ErrorMessage
		}
		d.Logger.Warn("topic a client asked for was not created", "topic", t.Topic, "error", why.Message)
		refused[t.Topic] = why
	}
}
