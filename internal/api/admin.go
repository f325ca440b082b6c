package api

// CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3, DescribeConfigs 1-4,
// AlterConfigs 0-2, IncrementalAlterConfigs 0-1. The controller decides; what is
// left here is to bound the wait by the request's timeout and to say so, item by
// item, when the controller cannot be reached.

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/wire"
)

// Control is the way to the controller. An error means that no decision was
// made, or that it is not known.
type Control interface {
	topics.Admin
	AlterConfigs(context.Context, *kmsg.AlterConfigsRequest) (*kmsg.AlterConfigsResponse, error)
	ElectLeaders(context.Context, *kmsg.ElectLeadersRequest) (*kmsg.ElectLeadersResponse, error)
	AlterPartitionReassignments(
		context.Context, *kmsg.AlterPartitionAssignmentsRequest,
	) (*kmsg.AlterPartitionAssignmentsResponse, error)
	ListPartitionReassignments(
		context.Context, *kmsg.ListPartitionReassignmentsRequest,
	) (*kmsg.ListPartitionReassignmentsResponse, error)
	UnregisterBroker(context.Context, *kmsg.UnregisterBrokerRequest) (*kmsg.UnregisterBrokerResponse, error)
	NextProducerID(context.Context) (kafka.ProducerID, error)
}

// decisionTimeout bounds a wait for the controller where the request names
// none.
const decisionTimeout = 30 * time.Second

// bounded returns ctx with the request's own timeout.
func bounded(ctx context.Context, timeoutMillis int32) (context.Context, context.CancelFunc) {
	d := time.Duration(timeoutMillis) * time.Millisecond
	if d <= 0 || d > decisionTimeout {
		d = decisionTimeout
	}
	return context.WithTimeout(ctx, d)
}

func (s *Services) createTopics(ctx context.Context, _ *wire.Request, req *kmsg.CreateTopicsRequest) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp, err := s.Control.CreateTopics(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, int16(codeOf(err)), ptr(messageOf(err))
		rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (s *Services) deleteTopics(ctx context.Context, _ *wire.Request, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp, err := s.Control.DeleteTopics(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	add := func(name *string, id [16]byte) {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = name, id
		rt.ErrorCode, rt.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
		resp.Topics = append(resp.Topics, rt)
	}
	for i := range req.TopicNames {
		add(&req.TopicNames[i], [16]byte{})
	}
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
	}
	return resp
}

func (s *Services) createPartitions(
	ctx context.Context, _ *wire.Request, req *kmsg.CreatePartitionsRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp, err := s.Control.CreatePartitions(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, int16(codeOf(err)), ptr(messageOf(err))
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (s *Services) describeConfigs(
	ctx context.Context, _ *wire.Request, req *kmsg.DescribeConfigsRequest,
) kmsg.Response {
	req.Resources = eachResourceOnce(req.Resources)
	resp, err := s.Control.DescribeConfigs(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, r := range req.Resources {
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		rr.ErrorCode, rr.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

// eachResourceOnce brings together what a request asks of the same resource: an
// answer must not grow with how often it is named.
func eachResourceOnce(asked []kmsg.DescribeConfigsRequestResource) []kmsg.DescribeConfigsRequestResource {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	at := make(map[resource]int, len(asked))
	once := asked[:0]
	for _, r := range asked {
		i, ok := at[resource{r.ResourceType, r.ResourceName}]
		switch {
		case !ok:
			at[resource{r.ResourceType, r.ResourceName}] = len(once)
			once = append(once, r)
		case r.ConfigNames == nil || once[i].ConfigNames == nil:
			once[i].ConfigNames = nil // All.
		default:
			once[i].ConfigNames = append(once[i].ConfigNames, r.ConfigNames...)
		}
	}
	for i := range once {
		once[i].ConfigNames = eachOnce(once[i].ConfigNames, func(name *string) string { return *name })
	}
	return once
}

func (s *Services) alterConfigs(ctx context.Context, _ *wire.Request, req *kmsg.AlterConfigsRequest) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	resp, err := s.Control.AlterConfigs(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, r := range req.Resources {
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		rr.ErrorCode, rr.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

func (s *Services) incrementalAlterConfigs(
	ctx context.Context, _ *wire.Request, req *kmsg.IncrementalAlterConfigsRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	resp, err := s.Control.IncrementalAlterConfigs(ctx, req)
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, r := range req.Resources {
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		rr.ErrorCode, rr.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}
