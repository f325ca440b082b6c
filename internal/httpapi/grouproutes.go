package httpapi

// Groups: GET /v1/groups; GET and DELETE /v1/groups/{group}. The group's machine
// decides (package group), as it does for Kafka's clients.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/session"
)

// GroupOverview is a group in a list.
type GroupOverview struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	ProtocolType string `json:"protocol_type"` // "" of a group that never had members.
	Members      int    `json:"members"`
}

// GroupList is the answer of GET /v1/groups.
type GroupList struct {
	Groups []GroupOverview `json:"groups"`
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// MemberDescription is a member of a group.
type MemberDescription struct {
	MemberID   string           `json:"member_id"`
	InstanceID *string          `json:"instance_id"`
	ClientID   string           `json:"client_id"`
	ClientHost string           `json:"client_host"`
	Partitions []TopicPartition `json:"partitions"` // Assigned to it.
}

// GroupPartition is how far a group is in a partition. A value that there is not,
// or that is not known here, is null.
type GroupPartition struct {
	TopicPartition
	CommittedOffset *int64  `json:"committed_offset"` // The next to read.
	HighWatermark   *int64  `json:"high_watermark"`
	Lag             *int64  `json:"lag"` // In records.
	MemberID        *string `json:"member_id"`
}

// GroupDescription is what is known of a group.
type GroupDescription struct {
	Group        string              `json:"group"`
	State        string              `json:"state"`
	ProtocolType string              `json:"protocol_type"`
	Protocol     string              `json:"protocol"`
	Generation   int32               `json:"generation"`
	Lag          int64               `json:"lag"` // Of all partitions together.
	Members      []MemberDescription `json:"members"`
	Partitions   []GroupPartition    `json:"partitions"`
}

func (s *server) listGroups(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	list := GroupList{Groups: []GroupOverview{}}
	others, err := s.groupsElsewhere(r)
	if err != nil {
		return err
	}
	list.Groups = append(list.Groups, others...)
	err = s.Groups.Shards.View(func(_ int32, m *group.Shard) {
		for _, g := range m.Overviews() {
			list.Groups = append(list.Groups, GroupOverview{g.GroupID, g.State.String(), g.ProtocolType, g.Members})
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(list.Groups, func(a, b GroupOverview) int { return cmp.Compare(a.Group, b.Group) })
	answer(w, http.StatusOK, list)
	return nil
}

// asker is what a group's machine is told of who asks: what it replies is one of kmsg's,
// so that it can make a refusal of it.
func (s *server) asker() group.Context {
	return group.Context{Topics: groups.Topics{Image: s.Control.Image()}}
}

// groupsElsewhere lists the groups that other brokers coordinate.
func (s *server) groupsElsewhere(r *http.Request) (all []GroupOverview, err error) {
	if !s.travels(r) {
		return nil, nil
	}
	offsets := s.Control.Image().Topic(metadata.OffsetsTopic)
	if offsets == nil {
		return nil, nil
	}
	asked := map[kafka.BrokerID]bool{s.NodeID: true, kafka.NoBroker: true}
	for i := range offsets.Partitions {
		leader := offsets.Partitions[i].Leader
		if asked[leader] {
			continue
		}
		asked[leader] = true
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		var list GroupList
		if err := s.askJSON(ctx, leader, r, &list); err != nil {
			return nil, err
		}
		all = append(all, list.Groups...)
	}
	return all, nil
}

// askTimeout is how long another broker may take to answer what waits for nothing.
const askTimeout = 5 * time.Second

// askJSON asks another broker what this one was asked, and reads the answer.
func (s *server) askJSON(ctx context.Context, to kafka.BrokerID, r *http.Request, answer any) error {
	resp, err := s.Forward.Send(ctx, to, r, nil)
	if err != nil {
		return &kafka.Error{
			Code: kafka.ErrBrokerNotAvailable, Message: fmt.Sprintf("broker %d, which has a part of it, does not answer: try again", to),
		}
	}
	if resp.StatusCode != http.StatusOK {
		return readProblem(resp)
	}
	b, err := readAnswer(resp)
	if err == nil {
		err = json.Unmarshal(b, answer)
	}
	return err
}

// aboutGroup answers a request about one group on the broker that coordinates it.
func (s *server) aboutGroup(w http.ResponseWriter, r *http.Request, fickle bool, here func() error) error {
	if s.Control.Image().Topic(metadata.OffsetsTopic) == nil {
		return noGroup(r.PathValue("group")) // There are no groups yet.
	}
	return s.travel(w, r, journey{
		find: func(context.Context) (leadership, error) { return s.leadershipOf(r.PathValue("group")) },
		here: here, patience: failoverPatience, fickle: fickle,
	})
}

func noGroup(id string) error {
	return refuse(http.StatusNotFound, kafka.ErrGroupIDNotFound,
		"group %q does not exist: it has no members and no committed offsets", clip(id))
}

func (s *server) describeGroup(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return s.aboutGroup(w, r, false, func() error { return s.describeGroupHere(w, r) })
}

func (s *server) describeGroupHere(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("group")
	ctx, cancel := context.WithTimeout(r.Context(), decisionTimeout)
	defer cancel()
	var (
		d     group.Description
		known bool
	)
	response, err := groups.AskNow(ctx, s.Groups, id, s.asker(), func(m *group.Shard, c *group.Context, fx *shard.Effects) {
		d, known = m.Describe(id)
		req := kmsg.NewPtrOffsetFetchRequest() // Of all topics, by version 7.
		req.Version, req.Group = 7, id
		m.OffsetFetch(c, req, fx)
	})
	if err != nil {
		return err
	}
	offsets := response.(*kmsg.OffsetFetchResponse)
	if err := errorOf(offsets.ErrorCode, nil); err != nil {
		return err
	}
	if !known {
		return noGroup(id)
	}
	out := GroupDescription{
		Group: id, State: d.State.String(), ProtocolType: d.ProtocolType, Protocol: d.Protocol,
		Generation: d.Generation, Members: []MemberDescription{}, Partitions: []GroupPartition{},
	}
	s.describeProgress(ctx, &out, &d, offsets)
	answer(w, http.StatusOK, out)
	return nil
}

// describeProgress fills in members, and the partitions that they or the group's
// offsets name.
func (s *server) describeProgress(
	ctx context.Context, out *GroupDescription, d *group.Description, offsets *kmsg.OffsetFetchResponse,
) {
	at := map[TopicPartition]*GroupPartition{}
	partition := func(tp TopicPartition) *GroupPartition {
		if at[tp] == nil {
			at[tp] = &GroupPartition{TopicPartition: tp}
		}
		return at[tp]
	}
	for _, t := range offsets.Topics {
		for _, p := range t.Partitions {
			if p.Offset >= 0 {
				partition(TopicPartition{t.Topic, p.Partition}).CommittedOffset = &p.Offset
			}
		}
	}
	for _, m := range d.Members {
		member := MemberDescription{
			MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost,
			Partitions: []TopicPartition{},
		}
		assigned, _ := group.AssignedPartitions(m.Assignment)
		for _, tp := range assigned {
			owned := TopicPartition{tp.Topic, tp.Partition}
			member.Partitions = append(member.Partitions, owned)
			partition(owned).MemberID = &member.MemberID
		}
		out.Members = append(out.Members, member)
	}
	s.addLags(ctx, at)
	for _, p := range at {
		if p.Lag != nil {
			out.Lag += *p.Lag
		}
		out.Partitions = append(out.Partitions, *p)
	}
	slices.SortFunc(out.Partitions, func(a, b GroupPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// addLags adds what the leaders of partitions say.
func (s *server) addLags(ctx context.Context, at map[TopicPartition]*GroupPartition) {
	by := map[string][]int32{}
	for tp := range at {
		by[tp.Topic] = append(by[tp.Topic], tp.Partition)
	}
	for topic, numbers := range by {
		view, code := s.Topics.ByName(topic)
		if code != kafka.ErrNone {
			continue
		}
		for i, ends := range s.Sessions.EndsOf(ctx, view, numbers) {
			if ends.Known {
				at[TopicPartition{topic, numbers[i]}].addLag(ends)
			}
		}
	}
}

func (p *GroupPartition) addLag(ends session.Ends) {
	high := int64(ends.HighWatermark)
	p.HighWatermark = &high
	if p.CommittedOffset != nil {
		// What retention took before it was read is not behind any more.
		lag := max(high-max(*p.CommittedOffset, int64(ends.LogStart)), 0)
		p.Lag = &lag
	}
}

func (s *server) deleteGroup(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return s.aboutGroup(w, r, true, func() error { return s.deleteGroupHere(w, r) })
}

func (s *server) deleteGroupHere(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), decisionTimeout)
	defer cancel()
	id := r.PathValue("group")
	response, err := groups.Ask(ctx, s.Groups, id, s.asker(), func(m *group.Shard, c *group.Context, fx *shard.Effects) {
		m.DeleteGroup(c, kmsg.NewPtrDeleteGroupsRequest().MaxVersion(), id, fx)
	})
	if err != nil {
		return err
	}
	out := &response.(*kmsg.DeleteGroupsResponse).Groups[0]
	if err := errorOf(out.ErrorCode, out.ErrorMessage); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
