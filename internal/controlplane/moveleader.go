package controlplane

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// preferredElection is the type of an election of preferred replicas in a request.
const preferredElection = 0

// MoveLeader makes a replica the preferred leader of a partition, the first of its
// replicas, and has it elected. It is refused while that replica is not in sync.
func (c *ControlPlane) MoveLeader(ctx context.Context, topic string, partition int32, to kafka.BrokerID) error {
	what := fmt.Sprintf("move the leader of %s-%d to broker %d", topic, partition, to)
	p := c.Image().Topic(topic).Partition(partition)
	if p == nil {
		return fmt.Errorf("%s: there is no such partition", what)
	}
	replicas := p.Target()
	at := slices.Index(replicas, to)
	switch {
	case p.Leader == to && at == 0:
		return nil
	case at < 0:
		return fmt.Errorf("%s: its replicas are %v", what, replicas)
	case at > 0:
		if err := c.prefer(ctx, topic, partition, replicas, at); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType, req.TimeoutMillis = req.MaxVersion(), preferredElection, 10_000
	named := kmsg.NewElectLeadersRequestTopic()
	named.Topic, named.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, named)
	resp, err := c.ElectLeaders(ctx, req)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if code := kafka.Code(rp.ErrorCode); code != kafka.ErrElectionNotNeeded {
				if err := codeError(rp.ErrorCode, rp.ErrorMessage); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
		}
	}
	return nil
}

// prefer puts one of a partition's replicas first; none of them moves.
func (c *ControlPlane) prefer(
	ctx context.Context, topic string, partition int32, replicas []kafka.BrokerID, at int,
) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version, req.TimeoutMillis = req.MaxVersion(), 10_000
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition = partition
	rp.Replicas = append(rp.Replicas, int32(replicas[at]))
	for i, id := range replicas {
		if i != at {
			rp.Replicas = append(rp.Replicas, int32(id))
		}
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := c.AlterPartitionReassignments(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := codeError(p.ErrorCode, p.ErrorMessage); err != nil {
				return err
			}
		}
	}
	return codeError(resp.ErrorCode, resp.ErrorMessage)
}

func codeError(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &kafka.Error{Code: kafka.Code(code)}
	if message != nil {
		e.Message = *message
	}
	return e
}
