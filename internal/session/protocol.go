package session

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/assignor"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// protocolType is what consumers call themselves in a group.
const protocolType = "consumer"

// metadataVersion is the version of the member metadata sent: the first that
// tells the generation of what is owned (KIP-792).
const metadataVersion = 2

// noGeneration is the generation of a member that has not been in any.
const noGeneration = -1

// strategies are the assignment strategies that sessions offer, the preferred
// one first. Between them are those that every client offers by default.
func strategies() []string {
	return []string{assignor.Cooperative, assignor.Range, assignor.RoundRobin, assignor.Sticky}
}

// offers returns the protocols of a JoinGroup request for a member that reads
// one topic and owns some partitions of it.
func offers(topic string, owned []int32, generation int32) []kmsg.JoinGroupRequestProtocol {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.Generation = metadataVersion, []string{topic}, generation
	if len(owned) > 0 {
		p := kmsg.NewConsumerMemberMetadataOwnedPartition()
		p.Topic, p.Partitions = topic, owned
		m.OwnedPartitions = append(m.OwnedPartitions, p)
	}
	plain := m.AppendTo(nil)
	// Sticky leaders look into the user data instead.
	m.UserData = stickyUserData(topic, owned, generation)
	sticky := m.AppendTo(nil)
	all := make([]kmsg.JoinGroupRequestProtocol, 0, len(strategies()))
	for _, name := range strategies() {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, plain
		if name == assignor.Sticky {
			p.Metadata = sticky
		}
		all = append(all, p)
	}
	return all
}

func stickyUserData(topic string, owned []int32, generation int32) []byte {
	if len(owned) == 0 {
		return nil
	}
	d := kmsg.NewStickyMemberMetadata()
	a := kmsg.NewStickyMemberMetadataCurrentAssignment()
	a.Topic, a.Partitions = topic, owned
	d.CurrentAssignment, d.Generation = append(d.CurrentAssignment, a), generation
	return d.AppendTo(nil)
}

// readMember reads what another member of the group offers. Metadata of which
// only the topics can be read is good enough, and a member whose metadata cannot
// be read at all gets nothing.
func readMember(strategy string, m *kmsg.JoinGroupResponseMember) assignor.Member {
	out := assignor.Member{ID: m.MemberID, Generation: noGeneration}
	if m.InstanceID != nil {
		out.InstanceID = *m.InstanceID
	}
	v := kmsg.NewConsumerMemberMetadata()
	if err := v.ReadFrom(m.ProtocolMetadata); err != nil {
		out.Topics, _ = group.SubscribedTopics(m.ProtocolMetadata)
		return out
	}
	out.Topics, out.Generation = v.Topics, v.Generation
	for _, t := range v.OwnedPartitions {
		for _, p := range t.Partitions {
			out.Owned = append(out.Owned, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	if strategy == assignor.Sticky {
		d := kmsg.NewStickyMemberMetadata()
		if err := d.ReadFrom(v.UserData); err == nil && len(v.UserData) > 0 {
			out.Owned, out.Generation = nil, d.Generation
			for _, t := range d.CurrentAssignment {
				for _, p := range t.Partitions {
					out.Owned = append(out.Owned, kafka.TopicPartition{Topic: t.Topic, Partition: p})
				}
			}
		}
	}
	return out
}

// assignments encodes a plan for SyncGroup, by member id.
func assignments(plan assignor.Plan) []kmsg.SyncGroupRequestGroupAssignment {
	all := make([]kmsg.SyncGroupRequestGroupAssignment, 0, len(plan))
	for id, owned := range plan {
		a := kmsg.NewConsumerMemberAssignment()
		for _, tp := range owned { // Sorted by topic.
			if n := len(a.Topics); n == 0 || a.Topics[n-1].Topic != tp.Topic {
				t := kmsg.NewConsumerMemberAssignmentTopic()
				t.Topic = tp.Topic
				a.Topics = append(a.Topics, t)
			}
			t := &a.Topics[len(a.Topics)-1]
			t.Partitions = append(t.Partitions, tp.Partition)
		}
		g := kmsg.NewSyncGroupRequestGroupAssignment()
		g.MemberID, g.MemberAssignment = id, a.AppendTo(nil)
		all = append(all, g)
	}
	return all
}

// assignedOf reads the partitions of one topic out of an assignment, in order.
// Bytes that are no assignment assign nothing.
func assignedOf(topic string, assignment []byte) []int32 {
	all, _ := group.AssignedPartitions(assignment)
	var mine []int32
	for _, tp := range all {
		if tp.Topic == topic {
			mine = append(mine, tp.Partition)
		}
	}
	slices.Sort(mine)
	return slices.Compact(mine)
}
