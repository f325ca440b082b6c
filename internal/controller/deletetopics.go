package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// DeleteTopics decides about topics that are to go, named by name or, from version
// 6 on, by id.
func (s *State) DeleteTopics(
	req *kmsg.DeleteTopicsRequest,
) (*kmsg.DeleteTopicsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := req.Topics
	if req.Version < 6 {
		asked = nil
		for i := range req.TopicNames {
			asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
		}
	}
	times := map[kafka.TopicID]int{}
	for _, a := range asked {
		if t, err := s.doomed(a); err == nil {
			times[t.ID]++
		}
	}
	var records []metadata.Record
	for _, a := range asked {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = a.Topic, a.TopicID
		t, err := s.doomed(a)
		if err == nil && times[t.ID] > 1 {
			err = refuse(kafka.ErrInvalidRequest, "topic %q is in the request %d times: name it "+
				"once",
				t.Name, times[t.ID])
		}
		if err == nil {
			out.Topic, out.TopicID = &t.Name, t.ID
			records = append(records, &metadata.TopicDeleted{ID: t.ID})
		}
		out.ErrorCode, out.ErrorMessage = outcome(err)
		resp.Topics = append(resp.Topics, out)
	}
	if err := s.checkDeletion(req.Version); err != nil {
		for i := range resp.Topics {
			resp.Topics[i].ErrorCode, resp.Topics[i].ErrorMessage = outcome(err)
		}
		return resp, nil
	}
	return resp, records
}

func (s *State) checkDeletion(version int16) *kafka.Error {
	if s.broker.DeleteTopicEnable {
		return nil
	}
	code := kafka.ErrTopicDeletionDisabled
	if version < 3 {
		code = kafka.ErrInvalidRequest // The protocol had no better word yet.
	}
	return refuse(code, "topics may not be deleted here: delete.topic.enable is false")
}

// doomed finds the topic that an item of the request names.
func (s *State) doomed(a kmsg.DeleteTopicsRequestTopic) (*metadata.Topic, *kafka.Error) {
	id := kafka.TopicID(a.TopicID)
	var t *metadata.Topic
	switch {
	case a.Topic != nil && !id.IsZero():
		return nil, refuse(kafka.ErrInvalidRequest, "topic %q is named by an id too: give the "+
			"one or the other",
			*a.Topic)
	case a.Topic == nil && id.IsZero():
		return nil, refuse(kafka.ErrInvalidRequest, "an item names neither a topic nor an id: "+
			"give the one or the other")
	case a.Topic == nil:
		if t = s.image.TopicByID(id); t == nil {
			return nil, refuse(kafka.ErrUnknownTopicID, "no topic has the id %s: it was deleted, "+
				"or never was", id)
		}
	default:
		if t = s.image.Topic(*a.Topic); t == nil {
			return nil, refuse(kafka.ErrUnknownTopicOrPartition, "there is no topic %q", *a.Topic)
		}
	}
	if metadata.IsInternal(t.Name) {
		return nil, refuse(kafka.ErrInvalidRequest, "topic %s is the brokers' own and holds what "+
			"groups have committed: it cannot be deleted; delete groups or their offsets "+
			"instead", t.Name)
	}
	return t, nil
}
