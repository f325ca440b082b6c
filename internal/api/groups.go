package api

// JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit 2-10,
// OffsetFetch 1-10, OffsetDelete 0, DescribeGroups 0-6, ListGroups 0-5,
// DeleteGroups 0-3. The group machine decides (package group); what is left here
// is to find the shard, to split requests about several groups, and to hand the
// reply to the connection when the coordinator gives it.

import (
	"context"
	"net"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

// groupReply is an answer that the coordinator gives, now or later. A request
// about several groups waits for all of them.
type groupReply struct {
	laterReply
	waiting atomic.Int32
	answers []kmsg.Response // One per group.
	merge   func([]kmsg.Response) kmsg.Response
}

// slot takes the answer about one group.
type slot struct {
	reply *groupReply
	i     int
}

// Complete implements shard.Caller.
func (s slot) Complete(response any) {
	s.reply.answers[s.i] = response.(kmsg.Response)
	if s.reply.waiting.Add(-1) == 0 {
		s.reply.complete(s.reply.merge(s.reply.answers), nil)
	}
}

func firstAnswer(answers []kmsg.Response) kmsg.Response { return answers[0] }

// hostKey finds a client's host among the values of its connection.
type hostKey struct{}

// clientHost returns the client's address as Kafka shows it. It is made once a
// connection: every heartbeat carries it.
func clientHost(c *wire.Conn) string {
	if host, ok := c.Value(hostKey{}).(string); ok {
		return host
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		host = c.RemoteAddr().String()
	}
	host = "/" + host
	c.SetValue(hostKey{}, host)
	return host
}

// beginReads begins a read for each id, so that those that must be confirmed by replicas
// are so together.
func beginReads[M shard.Machine](ids []string, begin func(string) coordinator.Reading[M]) []coordinator.Reading[M] {
	reads := make([]coordinator.Reading[M], len(ids))
	for i, id := range ids {
		reads[i] = begin(id)
	}
	return reads
}

// maxAskedAgain is how often a request may name the same group: an answer must
// not grow with how often a request says a thing.
const maxAskedAgain = 4

// ask runs a step per group and returns the reply that collects the answers.
func (s *Services) ask(
	ctx context.Context, w *wire.Request, ids []string, merge func([]kmsg.Response) kmsg.Response,
	step func(i int, m *group.Shard, c *group.Context, fx *shard.Effects),
	refuse func(i int, code kafka.Code, message string) kmsg.Response,
) *groupReply {
	r := &groupReply{
		laterReply: laterReply{wire: w, memory: s.memory}, answers: make([]kmsg.Response, len(ids)), merge: merge,
	}
	r.waiting.Store(int32(len(ids)))
	if len(ids) == 0 {
		r.complete(merge(r.answers), nil)
	}
	do := func(i int, step func(*group.Shard, int64, *shard.Effects)) error { return s.Groups.Do(ids[i], step) }
	switch w.Key {
	case kmsg.JoinGroup.Int16(), kmsg.LeaveGroup.Int16():
		do = func(i int, step func(*group.Shard, int64, *shard.Effects)) error {
			return s.Groups.DoSettled(ids[i], step)
		}
	case kmsg.OffsetFetch.Int16():
		reads := beginReads(ids, s.Groups.BeginRead)
		do = func(i int, step func(*group.Shard, int64, *shard.Effects)) error { return reads[i].Run(ctx, step) }
	}
	asked := map[string]int{}
	host := clientHost(w.Conn)
	for i, id := range ids {
		to := slot{r, i}
		if asked[id] == maxAskedAgain {
			to.Complete(refuse(i, kafka.ErrInvalidRequest, "the request names the group again and again: name it once"))
			continue
		}
		if len(ids) > 1 {
			asked[id]++
		}
		err := do(i, func(m *group.Shard, nowMs int64, fx *shard.Effects) {
			step(i, m, &group.Context{
				NowMs: nowMs, Caller: to, ClientID: w.ClientID, ClientHost: host,
				Topics: groups.Topics{Image: s.image()},
			}, fx)
		})
		if err != nil {
			to.Complete(refuse(i, codeOf(err), messageOf(err)))
		}
	}
	return r
}

// grouped makes the handler of a request that is about one group or several.
func grouped[T any, P message[T]](
	s *Services,
) func(context.Context, *wire.Request) wire.Response {
	return func(ctx context.Context, w *wire.Request) wire.Response {
		req := P(new(T))
		give, err := s.memory.read(ctx, w, req)
		if err != nil {
			return badRequest(w, err)
		}
		defer give()
		w.Release()
		if fetch, ok := any(req).(*kmsg.OffsetFetchRequest); ok {
			fetchOnce(fetch)
		}
		if id, ok := group.GroupID(req); ok {
			return s.ask(ctx, w, []string{id}, firstAnswer,
				func(_ int, m *group.Shard, c *group.Context, fx *shard.Effects) { m.Handle(c, req, fx) },
				func(_ int, code kafka.Code, message string) kmsg.Response {
					return group.ErrorResponse(req, code, message)
				})
		}
		if several, ok := any(req).(*kmsg.DeleteGroupsRequest); ok {
			return s.deleteGroups(ctx, w, several)
		}
		return s.fetchSeveral(ctx, w, any(req).(*kmsg.OffsetFetchRequest))
	}
}

// fetchOnce drops what an OffsetFetch asks for again: each offset may come with
// kilobytes of metadata.
func fetchOnce(req *kmsg.OffsetFetchRequest) {
	seen := map[partitionKey]bool{}
	once := func(partitions []int32, topic string, id kafka.TopicID) []int32 {
		return slices.DeleteFunc(partitions, func(i int32) bool {
			key := partitionKey{topic, id, i}
			again := seen[key]
			seen[key] = true
			return again
		})
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		t.Partitions = once(t.Partitions, t.Topic, kafka.TopicID{})
	}
	for i := range req.Groups {
		clear(seen)
		for j := range req.Groups[i].Topics {
			t := &req.Groups[i].Topics[j]
			t.Partitions = once(t.Partitions, t.Topic, t.TopicID)
		}
	}
}

// fetchSeveral answers an OffsetFetch about any number of groups.
func (s *Services) fetchSeveral(ctx context.Context, w *wire.Request, req *kmsg.OffsetFetchRequest) wire.Response {
	parts := group.SplitFetch(req)
	ids := make([]string, len(parts))
	for i := range parts {
		ids[i] = parts[i].Groups[0].Group
	}
	merge := func(answers []kmsg.Response) kmsg.Response {
		responses := make([]*kmsg.OffsetFetchResponse, len(answers))
		for i, a := range answers {
			responses[i] = a.(*kmsg.OffsetFetchResponse)
		}
		return group.MergeFetch(req.Version, responses)
	}
	return s.ask(ctx, w, ids, merge,
		func(i int, m *group.Shard, c *group.Context, fx *shard.Effects) { m.OffsetFetch(c, parts[i], fx) },
		func(i int, code kafka.Code, message string) kmsg.Response {
			return group.ErrorResponse(parts[i], code, message)
		})
}

// deleteGroups answers DeleteGroups, whose groups may belong to any shard.
func (s *Services) deleteGroups(ctx context.Context, w *wire.Request, req *kmsg.DeleteGroupsRequest) wire.Response {
	merge := func(answers []kmsg.Response) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, a := range answers {
			resp.Groups = append(resp.Groups, a.(*kmsg.DeleteGroupsResponse).Groups...)
		}
		return resp
	}
	return s.ask(ctx, w, req.Groups, merge,
		func(i int, m *group.Shard, c *group.Context, fx *shard.Effects) {
			m.DeleteGroup(c, req.Version, req.Groups[i], fx)
		},
		func(i int, code kafka.Code, message string) kmsg.Response {
			one := &kmsg.DeleteGroupsRequest{Version: req.Version, Groups: req.Groups[i : i+1]}
			return group.ErrorResponse(one, code, message)
		})
}

func (s *Services) describeGroups(
	ctx context.Context, _ *wire.Request, req *kmsg.DescribeGroupsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	ids := eachOnce(req.Groups, func(id *string) string { return *id })
	reads := beginReads(ids, s.Groups.BeginRead)
	for i, id := range ids {
		err := reads[i].Run(ctx, func(m *group.Shard, _ int64, _ *shard.Effects) {
			resp.Groups = append(resp.Groups, m.DescribeGroup(req.Version, id))
		})
		if err != nil {
			one := &kmsg.DescribeGroupsRequest{Version: req.Version, Groups: []string{id}}
			refused := group.ErrorResponse(one, codeOf(err), messageOf(err)).(*kmsg.DescribeGroupsResponse)
			resp.Groups = append(resp.Groups, refused.Groups...)
		}
	}
	return resp
}

func (s *Services) listGroups(_ context.Context, _ *wire.Request, req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	err := s.Groups.Shards.View(func(_ int32, m *group.Shard) {
		resp.Groups = m.List(resp.Groups, req.StatesFilter, req.TypesFilter)
	})
	resp.ErrorCode = int16(codeOf(err))
	return resp
}
