package controlplane

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// CreateTopics creates topics.
func (c *ControlPlane) CreateTopics(
	ctx context.Context, req *kmsg.CreateTopicsRequest,
) (*kmsg.CreateTopicsResponse, error) {
	d := c.topicCreation()
	if req.ValidateOnly {
		d.shown = nil
	}
	return ask(ctx, c, d, req)
}

func (c *ControlPlane) topicCreation() decision[*kmsg.CreateTopicsRequest, *kmsg.CreateTopicsResponse] {
	return decision[*kmsg.CreateTopicsRequest, *kmsg.CreateTopicsResponse]{
		what: "create topics", decide: (*controller.State).CreateTopics,
		decided: func(req *kmsg.CreateTopicsRequest, resp *kmsg.CreateTopicsResponse) {
			if !req.ValidateOnly {
				c.logCreated(resp)
			}
		},
		shown: func(image *metadata.Image, resp *kmsg.CreateTopicsResponse) bool {
			for i := range resp.Topics {
				t := &resp.Topics[i]
				if t.ErrorCode == 0 && image.Topic(t.Topic) == nil {
					return false
				}
			}
			return true
		},
	}
}

// logCreated writes one line, however many topics there are.
func (c *ControlPlane) logCreated(resp *kmsg.CreateTopicsResponse) {
	created, first := 0, ""
	for i := range resp.Topics {
		if resp.Topics[i].ErrorCode == 0 {
			if created == 0 {
				first = resp.Topics[i].Topic
			}
			created++
		}
	}
	if created > 0 {
		c.log.Info("topics created", "topic", first, "count", created)
	}
}

// DeleteTopics deletes topics.
func (c *ControlPlane) DeleteTopics(
	ctx context.Context, req *kmsg.DeleteTopicsRequest,
) (*kmsg.DeleteTopicsResponse, error) {
	if !c.leads() && req.Version < 6 {
		// The request may go on in a newer version, which names topics elsewhere.
		newer := *req
		newer.Topics = nil
		for i := range req.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &req.TopicNames[i]
			newer.Topics = append(newer.Topics, t)
		}
		req = &newer
	}
	return ask(ctx, c, c.topicDeletion(), req)
}

func (c *ControlPlane) topicDeletion() decision[*kmsg.DeleteTopicsRequest, *kmsg.DeleteTopicsResponse] {
	return decision[*kmsg.DeleteTopicsRequest, *kmsg.DeleteTopicsResponse]{
		what: "delete topics", decide: (*controller.State).DeleteTopics,
		decided: func(_ *kmsg.DeleteTopicsRequest, resp *kmsg.DeleteTopicsResponse) {
			for _, t := range resp.Topics {
				if t.ErrorCode == 0 {
					c.log.Info("topic deleted", "topic", *t.Topic)
				}
			}
		},
		shown: func(image *metadata.Image, resp *kmsg.DeleteTopicsResponse) bool {
			for i := range resp.Topics {
				t := &resp.Topics[i]
				if t.ErrorCode == 0 && image.TopicByID(t.TopicID) != nil {
					return false
				}
			}
			return true
		},
	}
}

// CreatePartitions adds partitions to topics.
func (c *ControlPlane) CreatePartitions(
	ctx context.Context, req *kmsg.CreatePartitionsRequest,
) (*kmsg.CreatePartitionsResponse, error) {
	d := c.partitionCreation()
	if !req.ValidateOnly {
		d.shown = func(image *metadata.Image, resp *kmsg.CreatePartitionsResponse) bool {
			return hasGrown(image, req, resp)
		}
	}
	return ask(ctx, c, d, req)
}

// hasGrown says whether an image has the partitions that an answer says were added.
func hasGrown(
	image *metadata.Image, req *kmsg.CreatePartitionsRequest, resp *kmsg.CreatePartitionsResponse,
) bool {
	added := map[string]bool{}
	for _, t := range resp.Topics {
		added[t.Topic] = t.ErrorCode == 0
	}
	for i := range req.Topics {
		rt := &req.Topics[i]
		if t := image.Topic(rt.Topic); added[rt.Topic] && t != nil && len(t.Partitions) < int(rt.Count) {
			return false
		}
	}
	return true
}

func (c *ControlPlane) partitionCreation() decision[
	*kmsg.CreatePartitionsRequest, *kmsg.CreatePartitionsResponse,
] {
	return decision[*kmsg.CreatePartitionsRequest, *kmsg.CreatePartitionsResponse]{
		what: "create partitions", decide: (*controller.State).CreatePartitions,
		decided: func(req *kmsg.CreatePartitionsRequest, resp *kmsg.CreatePartitionsResponse) {
			for _, t := range resp.Topics {
				if t.ErrorCode == 0 && !req.ValidateOnly {
					c.log.Warn("partitions added", "topic", t.Topic, "note", *t.ErrorMessage)
				}
			}
		},
	}
}

// AlterConfigs replaces configurations.
func (c *ControlPlane) AlterConfigs(
	ctx context.Context, req *kmsg.AlterConfigsRequest,
) (*kmsg.AlterConfigsResponse, error) {
	return ask(ctx, c, c.configReplacement(), req)
}

func (c *ControlPlane) configReplacement() decision[*kmsg.AlterConfigsRequest, *kmsg.AlterConfigsResponse] {
	return decision[*kmsg.AlterConfigsRequest, *kmsg.AlterConfigsResponse]{
		what: "alter configs", decide: (*controller.State).AlterConfigs,
		decided: func(req *kmsg.AlterConfigsRequest, resp *kmsg.AlterConfigsResponse) {
			for _, r := range resp.Resources {
				if r.ErrorCode == 0 && !req.ValidateOnly {
					c.logConfig(r.ResourceType, r.ResourceName)
				}
			}
		},
	}
}

// IncrementalAlterConfigs changes single values of configurations.
func (c *ControlPlane) IncrementalAlterConfigs(
	ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest,
) (*kmsg.IncrementalAlterConfigsResponse, error) {
	return ask(ctx, c, c.configChange(), req)
}

func (c *ControlPlane) configChange() decision[
	*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse,
] {
	return decision[*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse]{
		what: "alter configs", decide: (*controller.State).IncrementalAlterConfigs,
		decided: func(req *kmsg.IncrementalAlterConfigsRequest, resp *kmsg.IncrementalAlterConfigsResponse) {
			for _, r := range resp.Resources {
				if r.ErrorCode == 0 && !req.ValidateOnly {
					c.logConfig(r.ResourceType, r.ResourceName)
				}
			}
		},
	}
}

func (c *ControlPlane) logConfig(kind kmsg.ConfigResourceType, name string) {
	c.log.Info("configuration changed", "type", kind.String(), "name", name)
}

// DescribeConfigs describes configurations from this node's image.
func (c *ControlPlane) DescribeConfigs(
	_ context.Context, req *kmsg.DescribeConfigsRequest,
) (*kmsg.DescribeConfigsResponse, error) {
	return controller.DescribeConfigs(c.controller, c.image.Load(), req), nil
}

// AlterPartition changes ISRs, for leaders. A change that was made already by the
// time it is asked for again, because its answer was lost, is answered with
// INVALID_UPDATE_VERSION: the metadata shows it.
func (c *ControlPlane) AlterPartition(
	ctx context.Context, req *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, error) {
	return ask(ctx, c, c.isrChange(), req)
}

func (c *ControlPlane) isrChange() decision[*kmsg.AlterPartitionRequest, *kmsg.AlterPartitionResponse] {
	return decision[*kmsg.AlterPartitionRequest, *kmsg.AlterPartitionResponse]{
		what: "alter partition", decide: (*controller.State).AlterPartition, repeatable: true,
	}
}

// ElectLeaders elects leaders: preferred ones, or for partitions without any.
func (c *ControlPlane) ElectLeaders(
	ctx context.Context, req *kmsg.ElectLeadersRequest,
) (*kmsg.ElectLeadersResponse, error) {
	return ask(ctx, c, c.leaderElection(), req)
}

func (c *ControlPlane) leaderElection() decision[*kmsg.ElectLeadersRequest, *kmsg.ElectLeadersResponse] {
	return decision[*kmsg.ElectLeadersRequest, *kmsg.ElectLeadersResponse]{
		what: "elect leaders", decide: (*controller.State).ElectLeaders,
		decided: func(req *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse) {
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 {
						c.logElected(req, t.Topic, p.Partition)
					}
				}
			}
		},
	}
}

// logElected writes a line for each partition: an election that somebody asks for
// may have lost records.
func (c *ControlPlane) logElected(req *kmsg.ElectLeadersRequest, topic string, partition int32) {
	p := c.Image().Topic(topic).Partition(partition)
	if p == nil {
		return
	}
	line := c.log.With("topic", topic, "partition", partition, "leader", p.Leader, "leader_epoch", p.LeaderEpoch)
	if controller.IsUnclean(req) {
		line.Warn("a leader was elected that may lack acknowledged records")
	} else {
		line.Info("the preferred leader was elected")
	}
}

// AlterPartitionReassignments moves partitions to other brokers.
func (c *ControlPlane) AlterPartitionReassignments(
	ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest,
) (*kmsg.AlterPartitionAssignmentsResponse, error) {
	d := c.move()
	d.shown = func(image *metadata.Image, resp *kmsg.AlterPartitionAssignmentsResponse) bool {
		return showsMoves(image, req, resp)
	}
	return ask(ctx, c, d, req)
}

// showsMoves says whether an image has the moves that a request asked for and was
// granted: who lists them next must not take them for ended.
func showsMoves(
	image *metadata.Image, req *kmsg.AlterPartitionAssignmentsRequest, resp *kmsg.AlterPartitionAssignmentsResponse,
) bool {
	for i := range resp.Topics {
		t := image.Topic(resp.Topics[i].Topic)
		if t == nil || i >= len(req.Topics) || len(req.Topics[i].Partitions) != len(resp.Topics[i].Partitions) {
			continue // Deleted, or an answer to something else.
		}
		for j, granted := range resp.Topics[i].Partitions {
			p, wanted := t.Partition(granted.Partition), req.Topics[i].Partitions[j].Replicas
			if granted.ErrorCode != 0 || p == nil {
				continue
			}
			if wanted == nil && p.Moving() || wanted != nil && !slices.EqualFunc(p.Target(), wanted,
				func(a kafka.BrokerID, b int32) bool { return int32(a) == b }) {
				return false
			}
		}
	}
	return true
}

func (c *ControlPlane) move() decision[
	*kmsg.AlterPartitionAssignmentsRequest, *kmsg.AlterPartitionAssignmentsResponse,
] {
	return decision[*kmsg.AlterPartitionAssignmentsRequest, *kmsg.AlterPartitionAssignmentsResponse]{
		what: "move partitions", decide: (*controller.State).AlterPartitionReassignments,
		decided: func(_ *kmsg.AlterPartitionAssignmentsRequest, resp *kmsg.AlterPartitionAssignmentsResponse) {
			taken, refused := 0, 0
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 {
						taken++
					} else {
						refused++
					}
				}
			}
			c.log.Info("partitions are to move", "partitions", taken, "refused", refused)
		},
	}
}

// ListPartitionReassignments lists the partitions that move, from this node's
// image.
func (c *ControlPlane) ListPartitionReassignments(
	_ context.Context, req *kmsg.ListPartitionReassignmentsRequest,
) (*kmsg.ListPartitionReassignmentsResponse, error) {
	return controller.ListPartitionReassignments(c.image.Load(), req), nil
}

// UnregisterBroker forgets a broker that is stopped for good.
func (c *ControlPlane) UnregisterBroker(
	ctx context.Context, req *kmsg.UnregisterBrokerRequest,
) (*kmsg.UnregisterBrokerResponse, error) {
	return ask(ctx, c, c.unregistration(), req)
}

func (c *ControlPlane) unregistration() decision[*kmsg.UnregisterBrokerRequest, *kmsg.UnregisterBrokerResponse] {
	return decision[*kmsg.UnregisterBrokerRequest, *kmsg.UnregisterBrokerResponse]{
		what: "unregister the broker", decide: (*controller.State).UnregisterBroker,
		decided: func(req *kmsg.UnregisterBrokerRequest, resp *kmsg.UnregisterBrokerResponse) {
			if resp.ErrorCode == 0 {
				c.log.Info("broker unregistered", "broker", req.BrokerID)
			}
		},
	}
}

func (c *ControlPlane) allocation() decision[
	*kmsg.AllocateProducerIDsRequest, *kmsg.AllocateProducerIDsResponse,
] {
	return decision[*kmsg.AllocateProducerIDsRequest, *kmsg.AllocateProducerIDsResponse]{
		what: "allocate producer ids", decide: (*controller.State).AllocateProducerIDs, repeatable: true,
	}
}

func (c *ControlPlane) brokerRegistration() decision[
	*kmsg.BrokerRegistrationRequest, *kmsg.BrokerRegistrationResponse,
] {
	return decision[*kmsg.BrokerRegistrationRequest, *kmsg.BrokerRegistrationResponse]{
		what: "register the broker", decide: (*controller.State).RegisterBroker, repeatable: true,
		decided: func(req *kmsg.BrokerRegistrationRequest, resp *kmsg.BrokerRegistrationResponse) {
			if resp.ErrorCode == 0 {
				c.heard(kafka.BrokerID(req.BrokerID), kafka.BrokerEpoch(resp.BrokerEpoch))
				c.log.Info("broker registered", "broker", req.BrokerID, "broker_epoch", resp.BrokerEpoch)
			}
		},
	}
}

func (c *ControlPlane) heartbeat() decision[*kmsg.BrokerHeartbeatRequest, *kmsg.BrokerHeartbeatResponse] {
	return decision[*kmsg.BrokerHeartbeatRequest, *kmsg.BrokerHeartbeatResponse]{
		what: "heartbeat", decide: (*controller.State).Heartbeat, repeatable: true,
		routine: func(req *kmsg.BrokerHeartbeatRequest) (*kmsg.BrokerHeartbeatResponse, bool) {
			resp := controller.IsRoutine(c.Image(), req)
			ok := resp != nil && c.heard(kafka.BrokerID(req.BrokerID), kafka.BrokerEpoch(req.BrokerEpoch))
			if ok {
				c.tellUpTo(resp) // After the image was looked at: it is no newer.
			}
			return resp, ok
		},
		decided: func(req *kmsg.BrokerHeartbeatRequest, resp *kmsg.BrokerHeartbeatResponse) {
			if resp.ErrorCode == 0 {
				c.tellUpTo(resp)
				c.heard(kafka.BrokerID(req.BrokerID), kafka.BrokerEpoch(req.BrokerEpoch))
			}
		},
	}
}
