package api

import (
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
)

// resolve finds a topic by name, or by id where the request has ids. On
// failure the view has just the name that was asked for.
func (s *Services) resolve(name string, id kafka.TopicID, byID bool) (*topics.View, kafka.Code) {
	if byID {
		return s.Topics.ByID(id)
	}
	return s.Topics.ByName(name)
}

// fetchable finds the replica that a fetch asks for.
func (s *Services) fetchable(want *fetchedPartition) (*partition.Partition, kafka.Code) {
	view, code := s.resolve(want.topic, want.id, want.topic == "")
	if code != kafka.ErrNone {
		return nil, code
	}
	if p := view.Partition(want.partition); p != nil {
		return p, kafka.ErrNone
	}
	code, _ = view.NoPartition(want.partition)
	return nil, code
}
