package controller

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// maxPartitionsPerRequest bounds what one request may create, as in Kafka.
const maxPartitionsPerRequest = 10_000

// fromDefaults marks a number of partitions or replicas that the creator leaves to
// the broker.
const fromDefaults = -1

// CreateTopics decides about new topics. Each stands for itself: one that is
// refused does not hold up the others.
func (s *State) CreateTopics(
	req *kmsg.CreateTopicsRequest,
) (*kmsg.CreateTopicsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, 0, len(req.Topics))
	plan := s.newCreation(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		if plan.answered[t.Topic] {
			continue
		}
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic, out.Configs = t.Topic, []kmsg.CreateTopicsResponseTopicConfig{}
		record, err := plan.create(t)
		out.ErrorCode, out.ErrorMessage = outcome(err)
		if err == nil {
			plan.describe(&out, record)
		}
		plan.answered[t.Topic] = true
		resp.Topics = append(resp.Topics, out)
	}
	if req.ValidateOnly {
		return resp, nil
	}
	return resp, plan.records
}

// creation is the work on one request.
type creation struct {
	*State
	req       *kmsg.CreateTopicsRequest
	times     map[string]int  // How often the request has a name.
	answered  map[string]bool // By name.
	added     map[string]string
	placement placement
	records   []metadata.Record
	// plain is how a topic without values of its own is described; most have
	// none.
	plain []kmsg.CreateTopicsResponseTopicConfig
}

func (s *State) newCreation(req *kmsg.CreateTopicsRequest) *creation {
	c := &creation{
		State: s, req: req, times: make(map[string]int, len(req.Topics)),
		answered: make(map[string]bool, len(req.Topics)), added: map[string]string{},
		placement: s.newPlacement(),
	}
	for i := range req.Topics {
		c.times[req.Topics[i].Topic]++
	}
	return c
}

func (c *creation) create(t *kmsg.CreateTopicsRequestTopic) (*metadata.TopicCreated, *kafka.Error) {
	if err := c.checkName(t.Topic); err != nil {
		return nil, err
	}
	values, err := c.checkConfigs(t.Topic, t.Configs)
	if err != nil {
		return nil, err
	}
	partitions, err := c.partitions(t)
	if err != nil {
		return nil, err
	}
	record := &metadata.TopicCreated{
		Name: t.Topic, ID: c.opt.NewTopicID(), Partitions: partitions, Config: values,
	}
	c.placement.commit(partitions)
	c.added[metadata.CollisionKey(t.Topic)] = t.Topic
	c.records = append(c.records, record)
	return record, nil
}

func (c *creation) checkName(name string) *kafka.Error {
	if c.times[name] > 1 {
		return refuse(kafka.ErrInvalidRequest, "topic %q is in the request %d times: name it once",
			name, c.times[name])
	}
	if err := metadata.CheckTopicName(name); err != nil {
		return refuse(kafka.ErrInvalidTopicException, "%v", err)
	}
	if c.image.Topic(name) != nil {
		return refuse(kafka.ErrTopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	key := metadata.CollisionKey(name)
	other, taken := c.collisions[key]
	if !taken {
		other, taken = c.added[key]
	}
	if taken {
		return refuse(kafka.ErrInvalidTopicException, "Topic '%s' collides with existing topic: "+
			"%s. Names that differ only in '.' and '_' cannot be told apart in metrics: choose "+
			"another", name, other)
	}
	return nil
}

const cleanupPolicy = "cleanup.policy"

func (c *creation) checkConfigs(
	name string, configs []kmsg.CreateTopicsRequestTopicConfig,
) (map[string]string, *kafka.Error) {
	if len(configs) == 0 && name != metadata.OffsetsTopic {
		return nil, nil
	}
	values := make(map[string]string, len(configs))
	for _, v := range configs {
		if v.Value == nil {
			return nil, refuse(kafka.ErrInvalidConfig, "Null value not supported for topic "+
				"configs: %s. Leave the option out for the default", v.Name)
		}
		values[v.Name] = strings.TrimSpace(*v.Value)
	}
	if _, given := values[cleanupPolicy]; !given && name == metadata.OffsetsTopic {
		// Whoever creates it: by age, the commits of groups that live on would go.
		values[cleanupPolicy] = "compact"
	}
	if err := config.ValidateTopic(c.broker, values); err != nil {
		return nil, refuse(kafka.ErrInvalidConfig, "%v", err)
	}
	return values, nil
}

func (c *creation) partitions(
	t *kmsg.CreateTopicsRequestTopic,
) ([]metadata.Partition, *kafka.Error) {
	if len(t.ReplicaAssignment) > 0 {
		return c.assigned(t)
	}
	n, factor := t.NumPartitions, t.ReplicationFactor
	if n == fromDefaults {
		n = c.broker.NumPartitions
	}
	if factor == fromDefaults {
		factor = c.broker.DefaultReplicationFactor
	}
	if n <= 0 {
		return nil, refuse(kafka.ErrInvalidPartitions, "a topic cannot have %d partitions: ask "+
			"for at least 1, or for -1 to get the broker's default", n)
	}
	if factor <= 0 {
		return nil, refuse(kafka.ErrInvalidReplicationFactor, "a partition cannot have %d "+
			"replicas: ask for at least 1, or for -1 to get the broker's default", factor)
	}
	return c.placement.spread(int(n), int(factor))
}

// assigned takes the replicas that the creator names.
func (c *creation) assigned(t *kmsg.CreateTopicsRequestTopic) ([]metadata.Partition, *kafka.Error) {
	if t.NumPartitions != fromDefaults || t.ReplicationFactor != fromDefaults {
		return nil, refuse(kafka.ErrInvalidRequest, "with a replica assignment, the number of "+
			"partitions and the replication factor must be -1, not %d and %d",
			t.NumPartitions, t.ReplicationFactor)
	}
	lists := make([][]int32, len(t.ReplicaAssignment))
	for _, a := range t.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(lists) {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "partitions must be numbered "+
				"from 0 to %d without a gap; there is a number %d", len(lists)-1, a.Partition)
		}
		if lists[a.Partition] != nil {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "partition %d is assigned "+
				"twice", a.Partition)
		}
		lists[a.Partition] = append(make([]int32, 0, len(a.Replicas)), a.Replicas...)
	}
	return c.placement.given(lists, len(lists[0]))
}

// describe fills in what the answer tells of a new topic.
func (c *creation) describe(out *kmsg.CreateTopicsResponseTopic, t *metadata.TopicCreated) {
	if !c.req.ValidateOnly {
		out.TopicID = t.ID
	}
	if c.req.Version < 5 {
		return
	}
	out.NumPartitions = int32(len(t.Partitions))
	out.ReplicationFactor = int16(len(t.Partitions[0].Replicas))
	if len(t.Config) > 0 {
		out.Configs = c.configsOf(t.Config)
		return
	}
	if c.plain == nil {
		c.plain = c.configsOf(nil)
	}
	out.Configs = slices.Clip(c.plain)
}

func (c *creation) configsOf(values map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	entries := Sources(c.opt.Static, c.opt.Self, c.image).DescribeTopic(values)
	out := make([]kmsg.CreateTopicsResponseTopicConfig, len(entries))
	for i, e := range entries {
		out[i].Default()
		out[i].Name, out[i].Value, out[i].ReadOnly = e.Option.Name, e.Value, e.ReadOnly
		out[i].Source, out[i].IsSensitive = int8(e.Source), e.Option.Sensitive
	}
	return out
}
