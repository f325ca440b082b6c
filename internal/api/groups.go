package api

// JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, OffsetCommit 2-10,
// OffsetFetch 1-10, OffsetDelete 0, DescribeGroups 0-6, ListGroups 0-5,
// DeleteGroups 0-3. The group machine decides (package group); what is left here
// is to find the shard, to split requests about several groups, and to hand the
// reply to the connection when the coordinator gives it.

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/wire"
)

// Groups is the group coordinator as requests see it.
type Groups struct {
	Shards *coordinator.Coordinator[*group.Shard]
	// EnsureTopic creates __consumer_offsets if it is not there.
	EnsureTopic func(context.Context) error
	Image       func() *metadata.Image
}

// partitionOf returns the partition of __consumer_offsets that a group belongs
// to, and the broker that leads it.
func (g *Groups) partitionOf(id string) (int32, kafka.BrokerID, error) {
	t := g.Image().Topic(metadata.OffsetsTopic)
	if t == nil {
		return 0, kafka.NoBroker, &kafka.Error{
			Code:    kafka.ErrCoordinatorNotAvailable,
			Message: "topic " + metadata.OffsetsTopic + " is being created: try again",
		}
	}
	p := coordinator.PartitionOf(id, int32(len(t.Partitions)))
	return p, t.Partitions[p].Leader, nil
}

// Coordinator returns the broker that coordinates a group.
func (g *Groups) Coordinator(ctx context.Context, id string) (kafka.BrokerID, error) {
	if err := g.EnsureTopic(ctx); err != nil {
		return kafka.NoBroker, fmt.Errorf("create %s: %w", metadata.OffsetsTopic, err)
	}
	_, leader, err := g.partitionOf(id)
	if err == nil && leader == kafka.NoBroker {
		err = &kafka.Error{Code: kafka.ErrCoordinatorNotAvailable, Message: "the group's partition has no leader: try again"}
	}
	return leader, err
}

// Do runs one step of the machine that a group belongs to.
func (g *Groups) Do(id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	p, _, err := g.partitionOf(id)
	if err != nil {
		return err
	}
	return g.Shards.Do(p, step)
}

// topicsView lets the group machine resolve topics.
type topicsView struct{ image *metadata.Image }

// Topic implements group.Topics.
func (v topicsView) Topic(name string) (kafka.TopicID, int32, bool) {
	t := v.image.Topic(name)
	if t == nil {
		return kafka.TopicID{}, 0, false
	}
	return t.ID, int32(len(t.Partitions)), true
}

// TopicName implements group.Topics.
func (v topicsView) TopicName(id kafka.TopicID) (string, bool) {
	t := v.image.TopicByID(id)
	if t == nil {
		return "", false
	}
	return t.Name, true
}

// groupReply is an answer that the coordinator gives, now or later. A request
// about several groups waits for all of them.
type groupReply struct {
	wire    *wire.Request
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
		s.reply.wire.Wake()
	}
}

// Done implements wire.Response.
func (r *groupReply) Done() bool { return r.waiting.Load() == 0 }

// Deadline implements wire.Response: the machine has deadlines of its own for
// everything that it parks.
func (r *groupReply) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (r *groupReply) Encode(w *wire.Writer) error {
	if !r.Done() {
		return nil // The connection died first: there is nobody to tell.
	}
	w.Append(r.merge(r.answers).AppendTo)
	return nil
}

func firstAnswer(answers []kmsg.Response) kmsg.Response { return answers[0] }

// ask runs a step per group and returns the reply that collects the answers.
func (s *Services) ask(
	w *wire.Request, groups []string, merge func([]kmsg.Response) kmsg.Response,
	step func(i int, m *group.Shard, c *group.Context, fx *shard.Effects),
	refuse func(i int, code kafka.Code, message string) kmsg.Response,
) wire.Response {
	r := &groupReply{wire: w, answers: make([]kmsg.Response, len(groups)), merge: merge}
	r.waiting.Store(int32(len(groups)))
	host, _, err := net.SplitHostPort(w.Conn.RemoteAddr().String())
	if err != nil {
		host = w.Conn.RemoteAddr().String()
	}
	for i, id := range groups {
		to := slot{r, i}
		err := s.Groups.Do(id, func(m *group.Shard, nowMs int64, fx *shard.Effects) {
			step(i, m, &group.Context{
				NowMs: nowMs, Caller: to, ClientID: w.ClientID, ClientHost: "/" + host,
				Topics: topicsView{s.image()},
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
	s *Services, m *memory,
) func(context.Context, *wire.Request) wire.Response {
	return func(ctx context.Context, w *wire.Request) wire.Response {
		give, err := m.take(ctx, w)
		if err != nil {
			return badRequest(w, err)
		}
		defer give()
		req := P(new(T))
		if err := decode(w, req); err != nil {
			return badRequest(w, err)
		}
		w.Release()
		if id, ok := group.GroupID(req); ok {
			return s.ask(w, []string{id}, firstAnswer,
				func(_ int, m *group.Shard, c *group.Context, fx *shard.Effects) { m.Handle(c, req, fx) },
				func(_ int, code kafka.Code, message string) kmsg.Response {
					return group.ErrorResponse(req, code, message)
				})
		}
		if several, ok := any(req).(*kmsg.DeleteGroupsRequest); ok {
			return s.deleteGroups(w, several)
		}
		return s.fetchSeveral(w, any(req).(*kmsg.OffsetFetchRequest))
	}
}

// fetchSeveral answers an OffsetFetch about any number of groups.
func (s *Services) fetchSeveral(w *wire.Request, req *kmsg.OffsetFetchRequest) wire.Response {
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
	return s.ask(w, ids, merge,
		func(i int, m *group.Shard, c *group.Context, fx *shard.Effects) { m.OffsetFetch(c, parts[i], fx) },
		func(i int, code kafka.Code, message string) kmsg.Response {
			return group.ErrorResponse(parts[i], code, message)
		})
}

// deleteGroups answers DeleteGroups, whose groups may belong to any shard.
func (s *Services) deleteGroups(w *wire.Request, req *kmsg.DeleteGroupsRequest) wire.Response {
	merge := func(answers []kmsg.Response) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, a := range answers {
			resp.Groups = append(resp.Groups, a.(*kmsg.DeleteGroupsResponse).Groups...)
		}
		return resp
	}
	return s.ask(w, req.Groups, merge,
		func(i int, m *group.Shard, c *group.Context, fx *shard.Effects) {
			m.DeleteGroup(c, req.Version, req.Groups[i], fx)
		},
		func(i int, code kafka.Code, message string) kmsg.Response {
			one := &kmsg.DeleteGroupsRequest{Version: req.Version, Groups: req.Groups[i : i+1]}
			return group.ErrorResponse(one, code, message)
		})
}

func (s *Services) describeGroups(
	_ context.Context, _ *wire.Request, req *kmsg.DescribeGroupsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		err := s.Groups.Do(id, func(m *group.Shard, _ int64, _ *shard.Effects) {
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
