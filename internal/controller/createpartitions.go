package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// CreatePartitions decides about partitions that are to be added to topics. A
// success comes with a message: the keys of the topic go elsewhere from now on.
func (s *State) CreatePartitions(
	req *kmsg.CreatePartitionsRequest,
) (*kmsg.CreatePartitionsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	place := s.newPlacement()
	var records []metadata.Record
	for i := range req.Topics {
		t := &req.Topics[i]
		if times[t.Topic] == 0 {
			continue // Answered already.
		}
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = t.Topic
		record, err := s.grow(t, times[t.Topic], &place)
		times[t.Topic] = 0
		out.ErrorCode, out.ErrorMessage = outcome(err)
		if err == nil {
			warning := growthWarning(record)
			out.ErrorMessage = &warning
			records = append(records, record)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if req.ValidateOnly {
		return resp, nil
	}
	return resp, records
}

func (s *State) grow(
	req *kmsg.CreatePartitionsRequestTopic, times int, place *placement,
) (*metadata.PartitionsAdded, *kafka.Error) {
	t := s.image.Topic(req.Topic)
	switch {
	case times > 1:
		return nil, refuse(kafka.ErrInvalidRequest, "topic %q is in the request %d times: name "+
			"it once",
			req.Topic, times)
	case t == nil:
		return nil, refuse(kafka.ErrUnknownTopicOrPartition, "there is no topic %q", req.Topic)
	case metadata.IsInternal(t.Name):
		return nil, refuse(kafka.ErrInvalidPartitions, "topic %s cannot grow: groups are found "+
			"by hashing over its %d partitions", t.Name, len(t.Partitions))
	}
	have, want := len(t.Partitions), int(req.Count)
	switch {
	case want == have:
		return nil, refuse(kafka.ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	case want < have:
		return nil, refuse(kafka.ErrInvalidPartitions, "The topic %s currently has %d "+
			"partition(s); %d would not be an increase. A topic cannot shrink: create another "+
			"and copy the records",
			t.Name, have, want)
	}
	partitions, err := placeMore(t, req, want-have, place)
	if err != nil {
		return nil, err
	}
	place.commit(partitions)
	return &metadata.PartitionsAdded{ID: t.ID, First: int32(have), Partitions: partitions}, nil
}

func placeMore(
	t *metadata.Topic, req *kmsg.CreatePartitionsRequestTopic, more int, place *placement,
) ([]metadata.Partition, *kafka.Error) {
	factor := len(t.Partitions[0].Replicas)
	if req.Assignment == nil {
		return place.spread(more, factor)
	}
	if len(req.Assignment) != more {
		return nil, refuse(kafka.ErrInvalidReplicaAssignment, "%d partitions are to be added, "+
			"and %d assignments are given: give one for each", more, len(req.Assignment))
	}
	lists := make([][]int32, more)
	for i := range lists {
		lists[i] = req.Assignment[i].Replicas
	}
	return place.given(lists, factor)
}

// growthWarning says what adding partitions does to keys.
func growthWarning(r *metadata.PartitionsAdded) string {
	return fmt.Sprintf("from now on most keys map to other partitions than before (there are %d "+
		"instead of %d): what a key had before stays in its old partition, so its order holds "+
		"only before and after, not across. If order per key matters, let consumers reach the "+
		"end of the old partitions before producers go on, or create a new topic with enough "+
		"partitions and copy the records over",
		int(r.First)+len(r.Partitions), r.First)
}
