package controlplane

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/metadata"
)

// decide runs f on the quorum's loop, has its records replicated, and returns its
// answer once they are applied here. After an error nobody knows whether the
// records will be, so there is no answer. The request must not be used again after
// an error: the decision may still be made from it.
func decide[Q, R any](
	ctx context.Context, c *ControlPlane, what string, req Q,
	f func(*controller.State, Q) (R, []metadata.Record),
) (R, error) {
	var answer R // Written by the loop: not to be read after an error.
	err := c.proposer.Do(ctx, func() ([]byte, error) {
		a, records := f(c.state, req)
		answer = a
		if len(records) == 0 {
			return nil, nil
		}
		return metadata.AppendRecords(nil, records...), nil
	})
	if err != nil {
		var none R
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return answer, nil
}

// CreateTopics creates topics.
func (c *ControlPlane) CreateTopics(
	ctx context.Context, req *kmsg.CreateTopicsRequest,
) (*kmsg.CreateTopicsResponse, error) {
	resp, err := decide(ctx, c, "create topics", req, (*controller.State).CreateTopics)
	if err == nil && !req.ValidateOnly {
		c.logCreated(resp)
	}
	return resp, err
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
	resp, err := decide(ctx, c, "delete topics", req, (*controller.State).DeleteTopics)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 {
			c.log.Info("topic deleted", "topic", *t.Topic)
		}
	}
	return resp, nil
}

// CreatePartitions adds partitions to topics.
func (c *ControlPlane) CreatePartitions(
	ctx context.Context, req *kmsg.CreatePartitionsRequest,
) (*kmsg.CreatePartitionsResponse, error) {
	resp, err := decide(ctx, c, "create partitions", req, (*controller.State).CreatePartitions)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && !req.ValidateOnly {
			c.log.Warn("partitions added", "topic", t.Topic, "note", *t.ErrorMessage)
		}
	}
	return resp, nil
}

// AlterConfigs replaces configurations.
func (c *ControlPlane) AlterConfigs(
	ctx context.Context, req *kmsg.AlterConfigsRequest,
) (*kmsg.AlterConfigsResponse, error) {
	resp, err := decide(ctx, c, "alter configs", req, (*controller.State).AlterConfigs)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		if r.ErrorCode == 0 && !req.ValidateOnly {
			c.logConfig(r.ResourceType, r.ResourceName)
		}
	}
	return resp, nil
}

// IncrementalAlterConfigs changes single values of configurations.
func (c *ControlPlane) IncrementalAlterConfigs(
	ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest,
) (*kmsg.IncrementalAlterConfigsResponse, error) {
	resp, err := decide(ctx, c, "alter configs", req, (*controller.State).IncrementalAlterConfigs)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		if r.ErrorCode == 0 && !req.ValidateOnly {
			c.logConfig(r.ResourceType, r.ResourceName)
		}
	}
	return resp, nil
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

// AlterPartition changes ISRs, for leaders.
func (c *ControlPlane) AlterPartition(
	ctx context.Context, req *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, error) {
	return decide(ctx, c, "alter partition", req, (*controller.State).AlterPartition)
}
