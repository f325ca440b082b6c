package httpapi

// Topics: GET and POST /v1/topics; GET, PATCH and DELETE /v1/topics/{topic}. The
// controller decides, as it does for Kafka's clients, and its words are passed on.

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/durability"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/topics"
)

// TopicOverview is a topic in a list.
type TopicOverview struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	Internal          bool   `json:"internal"`
}

// TopicList is the answer of GET /v1/topics.
type TopicList struct {
	Topics []TopicOverview `json:"topics"`
}

// CreateTopicRequest is the body of POST /v1/topics. What is left out is the
// broker's default. Durability is one of package durability's contracts, instead of
// the settings that it consists of.
type CreateTopicRequest struct {
	Name              string            `json:"name"`
	Partitions        *int32            `json:"partitions"`
	ReplicationFactor *int16            `json:"replication_factor"`
	Durability        string            `json:"durability"`
	Configs           map[string]string `json:"configs"`
}

// PatchTopicRequest is the body of PATCH /v1/topics/{topic}.
type PatchTopicRequest struct {
	// Partitions is how many there are to be; more than there are.
	Partitions *int32        `json:"partitions"`
	Configs    *PatchConfigs `json:"configs"`
}

// PatchConfigs changes single configurations.
type PatchConfigs struct {
	Set    map[string]string `json:"set"`
	Delete []string          `json:"delete"` // What falls back to the default.
}

// PartitionDescription is a partition in TopicDescription. Offsets and size are the
// leader's; where it does not answer they are those of the replica on the broker that was
// asked, and null without one.
type PartitionDescription struct {
	Partition      int32   `json:"partition"`
	Leader         int32   `json:"leader"` // -1 without one.
	LeaderEpoch    int32   `json:"leader_epoch"`
	Replicas       []int32 `json:"replicas"`
	ISR            []int32 `json:"isr"`
	LogStartOffset *int64  `json:"log_start_offset"`
	HighWatermark  *int64  `json:"high_watermark"`
	LogEndOffset   *int64  `json:"log_end_offset"`
	SizeBytes      *int64  `json:"size_bytes"`
}

// ConfigDescription is the value of a configuration, and who gave it: "topic",
// "broker" or "default".
type ConfigDescription struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// TopicDescription is what is known of a topic.
type TopicDescription struct {
	Name              string                       `json:"name"`
	ID                string                       `json:"id"`
	Internal          bool                         `json:"internal"`
	ReplicationFactor int                          `json:"replication_factor"`
	Durability        string                       `json:"durability"` // "custom" where it is no contract.
	Partitions        []PartitionDescription       `json:"partitions"`
	Configs           map[string]ConfigDescription `json:"configs"`
	// Warnings are what to know about a change that was just made.
	Warnings []string `json:"warnings,omitempty"`
}

func (s *server) listTopics(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "internal")
	if err != nil {
		return err
	}
	internal := values.Get("internal")
	if values.Has("internal") && internal != "true" && internal != "false" {
		return badRequest("internal: want true or false, not %q", clip(internal))
	}
	list := TopicList{Topics: []TopicOverview{}}
	for t := range s.Control.Image().AllTopics() {
		if metadata.IsInternal(t.Name) && internal != "true" {
			continue
		}
		list.Topics = append(list.Topics, TopicOverview{
			Name: t.Name, ID: t.ID.String(), Partitions: len(t.Partitions),
			ReplicationFactor: len(t.Partitions[0].Replicas), Internal: metadata.IsInternal(t.Name),
		})
	}
	answer(w, http.StatusOK, list)
	return nil
}

func (s *server) createTopic(w http.ResponseWriter, r *http.Request) error {
	var body CreateTopicRequest
	if _, err := s.decode(w, r, &body); err != nil {
		return err
	}
	if body.Name == "" {
		return badRequest("name: the topic's name is missing")
	}
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = body.Name, -1, -1
	if body.Partitions != nil {
		if t.NumPartitions = *body.Partitions; t.NumPartitions < 1 {
			return badRequest("partitions: want at least 1, not %d", t.NumPartitions)
		}
	}
	if body.ReplicationFactor != nil {
		if t.ReplicationFactor = *body.ReplicationFactor; t.ReplicationFactor < 1 {
			return badRequest("replication_factor: want at least 1, not %d", t.ReplicationFactor)
		}
	}
	if err := s.keepContract(&body, &t); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(body.Configs)) {
		value := body.Configs[name]
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.Topics = req.MaxVersion(), append(req.Topics, t)
	ctx, cancel := context.WithTimeout(r.Context(), decisionTimeout)
	defer cancel()
	resp, err := s.Control.CreateTopics(ctx, req)
	if err != nil {
		return err
	}
	if err := errorOf(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/topics/"+url.PathEscape(body.Name))
	return s.answerTopic(w, r, http.StatusCreated, body.Name, nil)
}

// keepContract adds what a contract consists of to a topic that is to be created.
func (s *server) keepContract(body *CreateTopicRequest, t *kmsg.CreateTopicsRequestTopic) error {
	if body.Durability == "" {
		return nil
	}
	brokers := 0
	for _, b := range s.Control.Image().Brokers() {
		if !b.Fenced {
			brokers++
		}
	}
	choice, err := durability.Choose(body.Durability, brokers, int(max(t.ReplicationFactor, 0)))
	var unknown *durability.UnknownError
	switch {
	case errors.As(err, &unknown):
		return badRequest("durability: want strict, balanced or relaxed, not %q", clip(body.Durability))
	case err != nil:
		return &kafka.Error{Code: kafka.ErrInvalidReplicationFactor, Message: err.Error()}
	}
	settings := maps.Clone(choice.Settings)
	for name, value := range body.Configs {
		if fixed, ok := settings[name]; ok && fixed != value {
			return badRequest("configs: durability %s sets %s=%s: leave one of them out", body.Durability, name, fixed)
		}
		settings[name] = value
	}
	body.Configs, t.ReplicationFactor = settings, int16(choice.ReplicationFactor)
	return nil
}

func (s *server) describeTopic(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return s.answerTopic(w, r, http.StatusOK, r.PathValue("topic"), nil)
}

// answerTopic answers with the description of a topic.
func (s *server) answerTopic(
	w http.ResponseWriter, r *http.Request, status int, name string, warnings []string,
) error {
	view, err := s.topic(name)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
	req.Version, req.Resources = req.MaxVersion(), append(req.Resources, resource)
	resp, err := s.Control.DescribeConfigs(r.Context(), req)
	if err != nil {
		return err
	}
	described := &resp.Resources[0]
	if err := errorOf(described.ErrorCode, described.ErrorMessage); err != nil {
		return err
	}
	partitions := describePartitions(view)
	s.askLeaders(r, view, partitions)
	d := TopicDescription{
		Name: view.Name, ID: view.Meta.ID.String(), Internal: view.Internal,
		ReplicationFactor: len(view.Meta.Partitions[0].Replicas),
		Partitions:        partitions, Configs: map[string]ConfigDescription{}, Warnings: warnings,
	}
	for _, c := range described.Configs {
		if c.Value != nil {
			d.Configs[c.Name] = ConfigDescription{*c.Value, sourceOf(config.Source(c.Source))}
		}
	}
	d.Durability = string(contractOf(view.Meta, d.Configs))
	answer(w, status, d)
	return nil
}

// contractOf is what a topic promises, as its weakest partition does.
func contractOf(t *metadata.Topic, configs map[string]ConfigDescription) durability.Contract {
	least := len(t.Partitions[0].Replicas)
	for i := range t.Partitions {
		least = min(least, len(t.Partitions[i].Target()))
	}
	return durability.Of(durability.FactsOf(least, func(name string) string { return configs[name].Value }))
}

// sourceOf says in a word who gave a topic's configuration its value.
func sourceOf(s config.Source) string {
	switch s {
	case config.DynamicTopicConfig:
		return "topic"
	case config.DefaultConfig:
		return "default"
	}
	return "broker"
}

func describePartitions(view *topics.View) []PartitionDescription {
	out := make([]PartitionDescription, len(view.Meta.Partitions))
	for i := range view.Meta.Partitions {
		m := &view.Meta.Partitions[i]
		d := PartitionDescription{
			Partition: int32(i), Leader: int32(m.Leader), LeaderEpoch: int32(m.LeaderEpoch),
			Replicas: brokerIDs(m.Replicas), ISR: brokerIDs(m.ISR),
		}
		if p := view.Partition(int32(i)); p != nil {
			start, end, size := int64(p.Log().LogStartOffset()), int64(p.Log().LogEndOffset()), p.Log().Size()
			high := int64(p.HighWatermark())
			d.LogStartOffset, d.HighWatermark, d.LogEndOffset, d.SizeBytes = &start, &high, &end, &size
		}
		out[i] = d
	}
	return out
}

func brokerIDs(in []kafka.BrokerID) []int32 {
	out := make([]int32, len(in))
	for i, id := range in {
		out[i] = int32(id)
	}
	return out
}

func (s *server) patchTopic(w http.ResponseWriter, r *http.Request) error {
	var body PatchTopicRequest
	if _, err := s.decode(w, r, &body); err != nil {
		return err
	}
	if body.Partitions == nil && body.Configs == nil {
		return badRequest("there is nothing to change: give partitions or configs")
	}
	name := r.PathValue("topic")
	if _, err := s.topic(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), decisionTimeout)
	defer cancel()
	// Everything is looked at before anything is changed.
	var warnings []string
	for _, dryRun := range []bool{true, false} {
		if body.Configs != nil {
			if err := s.alterConfigs(ctx, name, body.Configs, dryRun); err != nil {
				return err
			}
		}
		if body.Partitions != nil {
			warning, err := s.addPartitions(ctx, name, *body.Partitions, dryRun)
			if err != nil {
				return err
			}
			if warnings = nil; warning != "" {
				warnings = []string{warning}
			}
		}
	}
	return s.answerTopic(w, r, http.StatusOK, name, warnings)
}

func (s *server) alterConfigs(ctx context.Context, topic string, c *PatchConfigs, dryRun bool) error {
	if len(c.Set)+len(c.Delete) == 0 {
		return badRequest("configs: there is nothing to change: give set or delete")
	}
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	change := func(name string, op kmsg.IncrementalAlterConfigOp, value *string) {
		x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		x.Name, x.Op, x.Value = name, op, value
		resource.Configs = append(resource.Configs, x)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Set)) {
		value := c.Set[name]
		change(name, kmsg.IncrementalAlterConfigOpSet, &value)
	}
	for _, name := range c.Delete {
		change(name, kmsg.IncrementalAlterConfigOpDelete, nil)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly, req.Resources = req.MaxVersion(), dryRun, append(req.Resources, resource)
	resp, err := s.Control.IncrementalAlterConfigs(ctx, req)
	if err != nil {
		return err
	}
	return errorOf(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
}

// addPartitions returns what to know about it.
func (s *server) addPartitions(ctx context.Context, topic string, count int32, dryRun bool) (string, error) {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.ValidateOnly, req.Topics = req.MaxVersion(), dryRun, append(req.Topics, t)
	resp, err := s.Control.CreatePartitions(ctx, req)
	if err != nil {
		return "", err
	}
	out := &resp.Topics[0]
	if err := errorOf(out.ErrorCode, out.ErrorMessage); err != nil {
		return "", err
	}
	if out.ErrorMessage == nil {
		return "", nil
	}
	return *out.ErrorMessage, nil
}

func (s *server) deleteTopic(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	name := r.PathValue("topic")
	if _, err := s.topic(name); err != nil {
		return err
	}
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.Topics = req.MaxVersion(), append(req.Topics, t)
	ctx, cancel := context.WithTimeout(r.Context(), decisionTimeout)
	defer cancel()
	resp, err := s.Control.DeleteTopics(ctx, req)
	if err != nil {
		return err
	}
	if err := errorOf(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
