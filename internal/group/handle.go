package group

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Handle answers any request that is about one group. The response has the
// request's version. It panics if the request is of another kind: see GroupID.
func (s *Shard) Handle(c *Context, req kmsg.Request, fx *shard.Effects) {
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		s.JoinGroup(c, r, fx)
	case *kmsg.SyncGroupRequest:
		s.SyncGroup(c, r, fx)
	case *kmsg.HeartbeatRequest:
		s.Heartbeat(c, r, fx)
	case *kmsg.LeaveGroupRequest:
		s.LeaveGroup(c, r, fx)
	case *kmsg.OffsetCommitRequest:
		s.OffsetCommit(c, r, fx)
	case *kmsg.TxnOffsetCommitRequest:
		s.TxnOffsetCommit(c, r, fx)
	case *kmsg.OffsetFetchRequest:
		s.OffsetFetch(c, r, fx)
	case *kmsg.OffsetDeleteRequest:
		s.OffsetDelete(c, r, fx)
	default:
		panic(fmt.Sprintf("group: no handler for %T", req))
	}
}

// GroupID returns the group that a request is about, and false if it is about
// none or several: the latter are split (see SplitFetch, DescribeGroup,
// DeleteGroup, List).
func GroupID(req kmsg.Request) (string, bool) {
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		return r.Group, true
	case *kmsg.SyncGroupRequest:
		return r.Group, true
	case *kmsg.HeartbeatRequest:
		return r.Group, true
	case *kmsg.LeaveGroupRequest:
		return r.Group, true
	case *kmsg.OffsetCommitRequest:
		return r.Group, true
	case *kmsg.TxnOffsetCommitRequest:
		return r.Group, true
	case *kmsg.OffsetFetchRequest:
		if r.Version < fetchGroups {
			return r.Group, true
		}
		if len(r.Groups) == 1 {
			return r.Groups[0].Group, true
		}
	case *kmsg.OffsetDeleteRequest:
		return r.Group, true
	}
	return "", false
}

// SplitFetch makes an OffsetFetch request of one group out of each of the groups
// in req, in order; the parts alias req. The responses go together with
// MergeFetch.
func SplitFetch(req *kmsg.OffsetFetchRequest) []*kmsg.OffsetFetchRequest {
	parts := make([]*kmsg.OffsetFetchRequest, 0, len(req.Groups))
	for i := range req.Groups {
		part := *req
		part.Groups = req.Groups[i : i+1 : i+1]
		parts = append(parts, &part)
	}
	return parts
}

// MergeFetch joins the responses to the parts that SplitFetch made.
func MergeFetch(version int16, parts []*kmsg.OffsetFetchResponse) *kmsg.OffsetFetchResponse {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = version
	for _, part := range parts {
		resp.Groups = append(resp.Groups, part.Groups...)
	}
	return resp
}

// ErrorResponse is a response that refuses all that a request asks for with one
// code. It is for what befalls a request before it reaches a machine. The message
// is told where the protocol has a place for it.
func ErrorResponse(req kmsg.Request, code kafka.Code, message string) kmsg.Response {
	resp := req.ResponseKind()
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		return joinRefusal(r.Version, code, r.MemberID)
	case *kmsg.OffsetCommitRequest:
		commitError(r, resp.(*kmsg.OffsetCommitResponse), code)
	case *kmsg.TxnOffsetCommitRequest:
		refuseTxnCommit(r, resp.(*kmsg.TxnOffsetCommitResponse), code)
	case *kmsg.OffsetFetchRequest:
		fetchError(r, resp.(*kmsg.OffsetFetchResponse), code)
	case *kmsg.DeleteGroupsRequest:
		for _, id := range r.Groups {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode, g.ErrorMessage = id, int16(code), &message
			resp := resp.(*kmsg.DeleteGroupsResponse)
			resp.Groups = append(resp.Groups, g)
		}
	case *kmsg.DescribeGroupsRequest:
		for _, id := range r.Groups {
			resp := resp.(*kmsg.DescribeGroupsResponse)
			resp.Groups = append(resp.Groups, describeError(id, code, message))
		}
	case *kmsg.ListGroupsRequest:
		resp.(*kmsg.ListGroupsResponse).ErrorCode = int16(code)
	default:
		Refuse(resp, code)
	}
	return resp
}

func commitError(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, code kafka.Code) {
	for i := range req.Topics {
		t := kmsg.NewOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for k := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = req.Topics[i].Partitions[k].Partition, int16(code)
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func fetchError(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse, code kafka.Code) {
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, partition := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetFetchResponseTopicPartition()
			p.Partition = partition
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	for i := range req.Groups {
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group = req.Groups[i].Group
		resp.Groups = append(resp.Groups, g)
	}
	Refuse(resp, code)
}

func describeError(id string, code kafka.Code, message string) kmsg.DescribeGroupsResponseGroup {
	g := kmsg.NewDescribeGroupsResponseGroup()
	g.Group, g.State, g.ErrorCode, g.ErrorMessage = id, Dead.String(), int16(code), &message
	return g
}
