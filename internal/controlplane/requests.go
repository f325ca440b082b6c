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
// records will be, so there is no answer.
func decide[R any](
	ctx context.Context, c *ControlPlane, what string, f func(*controller.State) (R, []metadata.Record),
) (R, error) {
	var answer R // Written by the loop: not to be read after an error.
	err := c.proposer.Do(ctx, func() ([]byte, error) {
		a, records := f(c.state)
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
	resp, err := decide(ctx, c, "create topics", func(s *controller.State) (*kmsg.CreateTopicsResponse, []metadata.Record) {
		return s.CreateTopics(req)
	})
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
	resp, err := decide(ctx, c, "delete topics", func(s *controller.State) (*kmsg.DeleteTopicsResponse, []metadata.Record) {
		return s.DeleteTopics(req)
	})
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
	resp, err := decide(ctx, c, "create partitions", func(s *controller.State) (*kmsg.CreatePartitionsResponse, []metadata.Record) {
		return s.CreatePartitions(req)
	})
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
	return decide(ctx, c, "alter configs", func(s *controller.State) (*kmsg.AlterConfigsResponse, []metadata.Record) {
		resp, records := s.AlterConfigs(req)
		c.logConfigs(records)
		return resp, records
	})
}

// IncrementalAlterConfigs changes single values of configurations.
func (c *ControlPlane) IncrementalAlterConfigs(
	ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest,
) (*kmsg.IncrementalAlterConfigsResponse, error) {
	return decide(ctx, c, "alter configs", func(s *controller.State) (*kmsg.IncrementalAlterConfigsResponse, []metadata.Record) {
		resp, records := s.IncrementalAlterConfigs(req)
		c.logConfigs(records)
		return resp, records
	})
}

func (c *ControlPlane) logConfigs(records []metadata.Record) {
	for _, r := range records {
		if r, ok := r.(*metadata.ConfigChanged); ok {
			c.log.Info("configuration changes", "resource", r.Resource.Name, "set", len(r.Set), "removed", r.Remove)
		}
	}
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
	return decide(ctx, c, "alter partition", func(s *controller.State) (*kmsg.AlterPartitionResponse, []metadata.Record) {
		return s.AlterPartition(req)
	})
}
