package controller

import (
	"fmt"
	"strconv"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Options make a State.
type Options struct {
	Self kafka.BrokerID
	// Static are the values of options that this node was started with. They must
	// resolve without an error.
	Static map[string]string
	// NewTopicID draws the id of a new topic.
	NewTopicID func() kafka.TopicID
	// Seen says whether a broker that is not fenced was heard of since this node
	// became the controller, see Liveness; nil if all were.
	Seen func(kafka.BrokerID) bool
}

// State is the metadata and what decisions need beside it.
type State struct {
	opt    Options
	image  *metadata.Image
	broker *config.Broker // Resolved from opt.Static and image.
	// collisions finds the topic that takes a name's place in metrics.
	collisions map[string]string
}

// New returns the state that decides on top of image.
func New(opt Options, image *metadata.Image) (*State, error) {
	s := &State{opt: opt, image: image, collisions: make(map[string]string, image.TopicCount())}
	for t := range image.AllTopics() {
		s.collisions[metadata.CollisionKey(t.Name)] = t.Name
	}
	var err error
	s.broker, err = Sources(opt.Static, opt.Self, image).Broker()
	return s, err
}

// Image returns the metadata.
func (s *State) Image() *metadata.Image { return s.image }

// Replay changes the state by records, which it may keep. After an error the
// state must not be used.
func (s *State) Replay(records []metadata.Record) (metadata.Delta, error) {
	image, delta, err := s.image.Apply(records...)
	if err != nil {
		return delta, err
	}
	for _, c := range delta.Topics {
		switch {
		case c.New == nil:
			if key := metadata.CollisionKey(c.Old.Name); s.collisions[key] == c.Old.Name {
				delete(s.collisions, key)
			}
		case c.Old == nil:
			s.collisions[metadata.CollisionKey(c.New.Name)] = c.New.Name
		}
	}
	s.image = image
	if len(delta.Configs) > 0 {
		// What another version stored and this one does not take leaves the settings
		// as they were; the owner of the image reports it.
		if b, err := Sources(s.opt.Static, s.opt.Self, image).Broker(); err == nil {
			s.broker = b
		}
	}
	return delta, nil
}

// Sources returns a broker's layers of configuration.
func Sources(static map[string]string, self kafka.BrokerID, image *metadata.Image) config.Sources {
	return config.Sources{
		Static:         static,
		ClusterDynamic: image.Config(metadata.Resource{Type: metadata.BrokerResource}),
		BrokerDynamic:  image.Config(brokerResource(self)),
	}
}

func brokerResource(id kafka.BrokerID) metadata.Resource {
	return metadata.Resource{Type: metadata.BrokerResource, Name: strconv.Itoa(int(id))}
}

// refuse makes a refusal.
func refuse(code kafka.Code, format string, args ...any) *kafka.Error {
	return &kafka.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// outcome returns what an answer says about one item.
func outcome(err *kafka.Error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	return int16(err.Code), &err.Message
}
