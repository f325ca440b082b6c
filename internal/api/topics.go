package api

import (
	"fmt"
	"strings"
	"sync"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// topicView is a topic as the data path needs it: names resolved, configuration
// typed. It is immutable and made once per change of the topic.
type topicView struct {
	meta     *metadata.Topic
	broker   *config.Broker
	name     string
	internal bool
	config   *config.Topic
	table    *partition.Table
}

// viewCache keeps the views of topics by id.
type viewCache struct{ views sync.Map } // kafka.TopicID -> *topicView

// resolve finds a topic by name, or by id where the request has ids. On
// failure the view has just the name that was asked for.
func (s *Services) resolve(name string, id kafka.TopicID, byID bool) (*topicView, kafka.Code) {
	var meta *metadata.Topic
	if byID {
		meta = s.image().TopicByID(id)
	} else {
		meta = s.image().Topic(name)
	}
	if meta == nil {
		if byID {
			return &topicView{}, kafka.ErrUnknownTopicID
		}
		// The name may alias a frame that is gone when the answer is written.
		return &topicView{name: strings.Clone(name)}, kafka.ErrUnknownTopicOrPartition
	}
	broker := s.Broker()
	if v, ok := s.views.views.Load(meta.ID); ok {
		if view := v.(*topicView); view.meta == meta && view.broker == broker {
			return view, kafka.ErrNone
		}
	}
	view := &topicView{
		meta: meta, broker: broker, name: meta.Name, internal: metadata.IsInternal(meta.Name),
		config: config.ResolveTopic(broker, meta.Config), table: s.Partitions,
	}
	s.views.views.Store(meta.ID, view)
	return view, kafka.ErrNone
}

// Forget drops what is kept of a deleted topic.
func (s *Services) Forget(id kafka.TopicID) { s.views.views.Delete(id) }

// partition returns the replica on this broker, or nil.
func (v *topicView) partition(i int32) *partition.Partition {
	return v.table.GetByID(v.meta.ID, i)
}

// noPartition says why partition returned nil.
func (v *topicView) noPartition(i int32) (kafka.Code, string) {
	if n := len(v.meta.Partitions); i < 0 || int(i) >= n {
		return kafka.ErrUnknownTopicOrPartition,
			fmt.Sprintf("topic %s has %d partitions, numbered from 0: there is no partition %d", v.name, n, i)
	}
	return kafka.ErrNotLeaderOrFollower, "this broker has no replica of the partition: refresh the metadata"
}

// fetchable finds the replica that a fetch asks for.
func (s *Services) fetchable(want *fetchedPartition) (*partition.Partition, kafka.Code) {
	view, code := s.resolve(want.topic, want.id, want.topic == "")
	if code != kafka.ErrNone {
		return nil, code
	}
	if p := view.partition(want.partition); p != nil {
		return p, kafka.ErrNone
	}
	code, _ = view.noPartition(want.partition)
	return nil, code
}

func unknownTopicMessage(name string, id kafka.TopicID) string {
	if name == "" {
		return "no topic has the id " + id.String() + ": it was deleted, or never was; refresh the metadata"
	}
	return "there is no topic " + name + ": create it first"
}
