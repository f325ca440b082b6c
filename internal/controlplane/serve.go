package controlplane

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// Serve answers a request from another broker, if this node is the active
// controller. It returns when the decision is in effect here, which takes a round
// of the quorum. A node that does not lead says NOT_CONTROLLER, and one that lost
// the lead meanwhile, so that nobody knows what will be, REQUEST_TIMED_OUT. An error
// means that the request is none of those that the controller decides.
func (c *ControlPlane) Serve(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.BrokerHeartbeatRequest:
		return serve(ctx, c, c.heartbeat(), req)
	case *kmsg.AlterPartitionRequest:
		return serve(ctx, c, c.isrChange(), req)
	case *kmsg.AllocateProducerIDsRequest:
		return serve(ctx, c, c.allocation(), req)
	case *kmsg.BrokerRegistrationRequest:
		return serve(ctx, c, c.brokerRegistration(), req)
	case *kmsg.UnregisterBrokerRequest:
		return serve(ctx, c, c.unregistration(), req)
	case *kmsg.CreateTopicsRequest:
		return serve(ctx, c, c.topicCreation(), req)
	case *kmsg.DeleteTopicsRequest:
		return serve(ctx, c, c.topicDeletion(), req)
	case *kmsg.CreatePartitionsRequest:
		return serve(ctx, c, c.partitionCreation(), req)
	case *kmsg.AlterConfigsRequest:
		return serve(ctx, c, c.configReplacement(), req)
	case *kmsg.IncrementalAlterConfigsRequest:
		return serve(ctx, c, c.configChange(), req)
	case *kmsg.ElectLeadersRequest:
		return serve(ctx, c, c.leaderElection(), req)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return serve(ctx, c, c.move(), req)
	}
	return nil, fmt.Errorf("the controller does not decide requests of type %T", req)
}

func serve[Q kmsg.Request, R kmsg.Response](
	ctx context.Context, c *ControlPlane, d decision[Q, R], req Q,
) (kmsg.Response, error) {
	if !c.leads() {
		return refusal(req, kafka.ErrNotController), nil
	}
	resp, made, err := here(ctx, c, d, req)
	switch {
	case err == nil:
		return resp, nil
	case made:
		c.log.Warn("a decision is not known to be in effect", "error", err)
		return refusal(req, kafka.ErrRequestTimedOut), nil
	}
	return refusal(req, kafka.ErrNotController), nil
}

// refusal is an answer that says the same of the whole request: in its head, or for
// every item where it has no head to say it in.
func refusal(req kmsg.Request, code kafka.Code) kmsg.Response {
	resp := req.ResponseKind()
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		out := resp.(*kmsg.CreateTopicsResponse)
		for i := range req.Topics {
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic, t.ErrorCode = req.Topics[i].Topic, int16(code)
			out.Topics = append(out.Topics, t)
		}
	case *kmsg.DeleteTopicsRequest:
		out := resp.(*kmsg.DeleteTopicsResponse)
		for i := range req.TopicNames {
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.ErrorCode = &req.TopicNames[i], int16(code)
			out.Topics = append(out.Topics, t)
		}
		for i := range req.Topics {
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.TopicID, t.ErrorCode = req.Topics[i].Topic, req.Topics[i].TopicID, int16(code)
			out.Topics = append(out.Topics, t)
		}
	case *kmsg.CreatePartitionsRequest:
		out := resp.(*kmsg.CreatePartitionsResponse)
		for i := range req.Topics {
			t := kmsg.NewCreatePartitionsResponseTopic()
			t.Topic, t.ErrorCode = req.Topics[i].Topic, int16(code)
			out.Topics = append(out.Topics, t)
		}
	case *kmsg.AlterConfigsRequest:
		out := resp.(*kmsg.AlterConfigsResponse)
		for i := range req.Resources {
			r := kmsg.NewAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			r.ErrorCode = int16(code)
			out.Resources = append(out.Resources, r)
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		out := resp.(*kmsg.IncrementalAlterConfigsResponse)
		for i := range req.Resources {
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			r.ErrorCode = int16(code)
			out.Resources = append(out.Resources, r)
		}
	default:
		if head := headOf(resp); head != nil {
			*head = int16(code)
		}
	}
	return resp
}

// headOf returns where an answer has a code for the whole request, nil where it has
// none.
func headOf(resp kmsg.Response) *int16 {
	switch resp := resp.(type) {
	case *kmsg.BrokerHeartbeatResponse:
		return &resp.ErrorCode
	case *kmsg.AlterPartitionResponse:
		return &resp.ErrorCode
	case *kmsg.AllocateProducerIDsResponse:
		return &resp.ErrorCode
	case *kmsg.BrokerRegistrationResponse:
		return &resp.ErrorCode
	case *kmsg.UnregisterBrokerResponse:
		return &resp.ErrorCode
	case *kmsg.ElectLeadersResponse:
		return &resp.ErrorCode
	case *kmsg.AlterPartitionAssignmentsResponse:
		return &resp.ErrorCode
	}
	return nil
}

// refusedBy returns the code that an answer has for the whole request, or for the
// first item where it has no head. The codes that refusal is called with are no
// single item's.
func refusedBy(resp kmsg.Response) kafka.Code {
	if head := headOf(resp); head != nil {
		return kafka.Code(*head)
	}
	code := int16(0)
	switch resp := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		if len(resp.Topics) > 0 {
			code = resp.Topics[0].ErrorCode
		}
	case *kmsg.DeleteTopicsResponse:
		if len(resp.Topics) > 0 {
			code = resp.Topics[0].ErrorCode
		}
	case *kmsg.CreatePartitionsResponse:
		if len(resp.Topics) > 0 {
			code = resp.Topics[0].ErrorCode
		}
	case *kmsg.AlterConfigsResponse:
		if len(resp.Resources) > 0 {
			code = resp.Resources[0].ErrorCode
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		if len(resp.Resources) > 0 {
			code = resp.Resources[0].ErrorCode
		}
	}
	return kafka.Code(code)
}
