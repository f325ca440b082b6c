package group

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// groupType is Kafka's name of the kind of all groups here.
const groupType = "classic"

// describeNotFound is the first version of DescribeGroups that calls an unknown
// group so (KIP-1043); before, it is dead and no error.
const describeNotFound = 6

// Description is a group in words for people and tools.
type Description struct {
	GroupID      string
	State        State
	ProtocolType string
	Protocol     string
	Generation   int32
	Leader       string
	Members      []MemberDescription
}

// MemberDescription is a member of a Description.
type MemberDescription struct {
	MemberID   string
	InstanceID *string
	ClientID   string
	ClientHost string
	Metadata   []byte // For the chosen protocol; nil unless the group is stable.
	Assignment []byte // Nil unless the group is stable.
}

// Describe returns what is known of a group, and false if there is none.
func (s *Shard) Describe(id string) (Description, bool) {
	g := s.groups[id]
	if g == nil {
		return Description{GroupID: id, State: Dead}, false
	}
	d := Description{
		GroupID: g.id, State: g.state, ProtocolType: g.protocolType,
		Generation: g.generation, Leader: g.leader,
	}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.members {
		x := MemberDescription{
			MemberID: m.id, InstanceID: m.instanceID, ClientID: m.clientID, ClientHost: m.clientHost,
		}
		if g.state == Stable {
			x.Metadata, x.Assignment = bytes.Clone(m.metadata(g.protocol)), bytes.Clone(m.assignment)
		}
		d.Members = append(d.Members, x)
	}
	return d, true
}

// DescribeGroup answers for one group of a DescribeGroups request of versions
// 0-6.
func (s *Shard) DescribeGroup(version int16, id string) kmsg.DescribeGroupsResponseGroup {
	resp := kmsg.NewDescribeGroupsResponseGroup()
	resp.AuthorizedOperations = math.MinInt32
	d, ok := s.Describe(id)
	if !ok && version >= describeNotFound {
		resp.ErrorCode = int16(kafka.ErrGroupIDNotFound)
		resp.ErrorMessage = message(
			"group %q does not exist: it has no members and no committed offsets", id)
	}
	resp.Group, resp.State = id, d.State.String()
	resp.ProtocolType, resp.Protocol = d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		x := kmsg.NewDescribeGroupsResponseGroupMember()
		x.MemberID, x.InstanceID = m.MemberID, m.InstanceID
		x.ClientID, x.ClientHost = m.ClientID, m.ClientHost
		x.ProtocolMetadata, x.MemberAssignment = nonNil(m.Metadata), nonNil(m.Assignment)
		resp.Members = append(resp.Members, x)
	}
	return resp
}

// List appends the shard's groups that pass the filters of a ListGroups request
// of versions 0-5, by group id. Filters do not mind case; an empty one lets all
// pass.
func (s *Shard) List(
	dst []kmsg.ListGroupsResponseGroup, states, types []string,
) []kmsg.ListGroupsResponseGroup {
	if !passes(types, groupType) {
		return dst
	}
	for _, g := range s.Overviews() {
		if !passes(states, g.State.String()) {
			continue
		}
		x := kmsg.NewListGroupsResponseGroup()
		x.Group, x.ProtocolType = g.GroupID, g.ProtocolType
		x.GroupState, x.GroupType = g.State.String(), groupType
		dst = append(dst, x)
	}
	return dst
}

// Overview is a group in one line.
type Overview struct {
	GroupID      string
	State        State
	ProtocolType string // Empty if the group never had members.
	Members      int
	Topics       int // With committed offsets.
}

// Overviews returns the shard's groups by group id.
func (s *Shard) Overviews() []Overview {
	all := make([]Overview, 0, len(s.groups))
	for _, g := range s.groups {
		all = append(all, Overview{g.id, g.state, g.protocolType, len(g.members), len(g.offsets)})
	}
	slices.SortFunc(all, func(a, b Overview) int { return strings.Compare(a.GroupID, b.GroupID) })
	return all
}

func passes(filter []string, s string) bool {
	return len(filter) == 0 ||
		slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, s) })
}

// DeleteGroup deletes an empty group with its offsets. The reply is a
// *kmsg.DeleteGroupsResponse of versions 0-3 with one group.
func (s *Shard) DeleteGroup(c *Context, version int16, id string, fx *shard.Effects) {
	fx.Subject = id
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = version
	r := kmsg.NewDeleteGroupsResponseGroup()
	r.Group = id
	switch g := s.groups[id]; {
	case g == nil:
		r.ErrorCode = int16(kafka.ErrGroupIDNotFound)
		r.ErrorMessage = message("group %q does not exist", id)
	case g.state != Empty:
		r.ErrorCode = int16(kafka.ErrNonEmptyGroup)
		r.ErrorMessage = message("group %q has %d members: stop them, then delete it", id, len(g.members))
	default:
		for _, name := range g.topics(nil) {
			for _, p := range g.partitions(nil, name) {
				g.appendOffsetTombstone(fx, name, p)
			}
		}
		for at := range g.unstable {
			if _, committed := g.offsets[at.Topic][at.Partition]; !committed {
				g.appendOffsetTombstone(fx, at.Topic, at.Partition)
			}
		}
		g.appendTombstone(fx)
	}
	resp.Groups = append(resp.Groups, r)
	fx.Reply(c.Caller, resp)
}

// OffsetDelete answers version 0 of the request: offsets of topics that the
// group does not read are deleted.
func (s *Shard) OffsetDelete(c *Context, req *kmsg.OffsetDeleteRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	fx.Reply(c.Caller, resp)
	g := s.groups[req.Group]
	switch {
	case len(req.Group) > maxString:
		resp.ErrorCode = int16(kafka.ErrInvalidGroupID)
		return
	case g == nil:
		resp.ErrorCode = int16(kafka.ErrGroupIDNotFound)
		return
	case g.state != Empty && g.protocolType != consumerProtocol:
		// Nobody but its members can tell what such a group reads.
		resp.ErrorCode = int16(kafka.ErrNonEmptyGroup)
		return
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		r := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
		_, code := resolve(c.Topics, t.Topic, kafka.TopicID{}, false)
		if code == kafka.ErrNone && g.subscribed(t.Topic) {
			code = kafka.ErrGroupSubscribedToTopic
		}
		for _, p := range t.Partitions {
			if _, ok := g.offsets[t.Topic][p.Partition]; ok && code == kafka.ErrNone {
				g.appendOffsetTombstone(fx, t.Topic, p.Partition)
			}
			r.Partitions = append(r.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
				Partition: p.Partition, ErrorCode: int16(code),
			})
		}
		resp.Topics = append(resp.Topics, r)
	}
}

func (g *group) appendOffsetTombstone(fx *shard.Effects, topic string, partition int32) {
	fx.Append(func(dst []byte) []byte { return appendOffsetKey(dst, g.id, topic, partition) }, nil)
}

func (g *group) appendTombstone(fx *shard.Effects) {
	fx.Append(func(dst []byte) []byte { return appendGroupKey(dst, g.id) }, nil)
}

func message(format string, args ...any) *string {
	s := fmt.Sprintf(format, args...)
	return &s
}
