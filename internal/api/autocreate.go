package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// maybeAutoCreate creates the topics that a Metadata request names and that are
// not there, if the client wants that. It returns why some were not, by name.
func (s *Services) maybeAutoCreate(ctx context.Context, req *kmsg.MetadataRequest) map[string]*kafka.Error {
	if req.Version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	names := make([]string, 0, len(req.Topics))
	for _, t := range req.Topics {
		names = append(names, text(t.Topic))
	}
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	refused, _ := s.Topics.AutoCreate(ctx, names...) // What is not known is asked for again.
	return refused
}

// text returns what a nullable string says.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
