package api

// DescribeAcls, CreateAcls and DeleteAcls, versions 1-3: refused with
// SECURITY_DISABLED, as Kafka does without an authorizer. Silence would let an
// operator believe in a rule that nobody enforces.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

const securityDisabled = "this broker has no authorizer: every client may do everything, and no ACL can be kept"

func (s *Services) describeACLs(_ context.Context, _ *wire.Request, req *kmsg.DescribeACLsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = int16(kafka.ErrSecurityDisabled), ptr(securityDisabled)
	return resp
}

func (s *Services) createACLs(_ context.Context, _ *wire.Request, req *kmsg.CreateACLsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for range req.Creations {
		resp.Results = append(resp.Results, kmsg.CreateACLsResponseResult{
			ErrorCode: int16(kafka.ErrSecurityDisabled), ErrorMessage: ptr(securityDisabled),
		})
	}
	return resp
}

func (s *Services) deleteACLs(_ context.Context, _ *wire.Request, req *kmsg.DeleteACLsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for range req.Filters {
		resp.Results = append(resp.Results, kmsg.DeleteACLsResponseResult{
			ErrorCode: int16(kafka.ErrSecurityDisabled), ErrorMessage: ptr(securityDisabled),
		})
	}
	return resp
}
