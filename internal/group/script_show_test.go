package group_test

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// show shows a response in one line.
func show(response any) string {
	if r, ok := response.(kmsg.Response); ok {
		r.AppendTo(nil) // Whatever the version: it must not panic.
	}
	switch r := response.(type) {
	case *kmsg.JoinGroupResponse:
		return showJoin(r)
	case *kmsg.SyncGroupResponse:
		if r.ErrorCode != 0 {
			return "sync " + code(r.ErrorCode)
		}
		return fmt.Sprintf("sync %s/%s %q", str(r.ProtocolType), str(r.Protocol), r.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		return "heartbeat " + code(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		s := "leave " + code(r.ErrorCode)
		for _, m := range r.Members {
			s += fmt.Sprintf(" [%s %s]", ref(m.InstanceID, m.MemberID), code(m.ErrorCode))
		}
		return s
	case *kmsg.OffsetCommitResponse:
		var s []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s = append(s, fmt.Sprintf("%s-%d %s",
					topicName(t.Topic, t.TopicID), p.Partition, code(p.ErrorCode)))
			}
		}
		return "commit " + strings.Join(s, ", ")
	case *kmsg.TxnOffsetCommitResponse:
		var s []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s = append(s, fmt.Sprintf("%s-%d %s", topicName(t.Topic, t.TopicID), p.Partition, code(p.ErrorCode)))
			}
		}
		return "txn-commit " + strings.Join(s, ", ")
	case *kmsg.OffsetFetchResponse:
		return showFetch(r)
	case *kmsg.OffsetDeleteResponse:
		s := "offset-delete " + code(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(", %s-%d %s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
		return s
	case *kmsg.DeleteGroupsResponse:
		return fmt.Sprintf("delete %s %s", code(r.Groups[0].ErrorCode), str(r.Groups[0].ErrorMessage))
	}
	return fmt.Sprintf("%T", response)
}

func showJoin(r *kmsg.JoinGroupResponse) string {
	if r.ErrorCode != 0 {
		return fmt.Sprintf("join %s member=%s", code(r.ErrorCode), r.MemberID)
	}
	s := fmt.Sprintf("join generation=%d %s/%s leader=%s member=%s",
		r.Generation, str(r.ProtocolType), str(r.Protocol), r.LeaderID, r.MemberID)
	if r.SkipAssignment {
		s += " skip-assignment"
	}
	for _, m := range r.Members {
		topics, ok := group.SubscribedTopics(m.ProtocolMetadata)
		if !ok {
			topics = []string{"?"}
		}
		s += fmt.Sprintf(" [%s %s]", ref(m.InstanceID, m.MemberID), strings.Join(topics, "+"))
	}
	return s
}

func showFetch(r *kmsg.OffsetFetchResponse) string {
	s := "fetch"
	if r.ErrorCode != 0 {
		s += " " + code(r.ErrorCode)
	}
	line := func(topic string, partition int32, offset int64, epoch int32, metadata *string, c int16) {
		s += fmt.Sprintf(" [%s-%d %d", topic, partition, offset)
		if epoch != -1 {
			s += fmt.Sprintf(" epoch=%d", epoch)
		}
		if str(metadata) != "" {
			s += fmt.Sprintf(" %q", str(metadata))
		}
		if c != 0 {
			s += " " + code(c)
		}
		s += "]"
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			line(t.Topic, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range r.Groups {
		s += " " + g.Group + ":"
		if g.ErrorCode != 0 {
			s += " " + code(g.ErrorCode)
		}
		for _, t := range g.Topics {
			name := topicName(t.Topic, t.TopicID)
			for _, p := range t.Partitions {
				line(name, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode)
			}
		}
	}
	return s
}

func showDescribed(g *kmsg.DescribeGroupsResponseGroup) string {
	s := fmt.Sprintf("%s %s state=%s type=%q protocol=%q",
		code(g.ErrorCode), g.Group, g.State, g.ProtocolType, g.Protocol)
	if g.ErrorMessage != nil {
		s += fmt.Sprintf(" message=%q", *g.ErrorMessage)
	}
	for _, m := range g.Members {
		s += fmt.Sprintf("\n  %s client=%s host=%s metadata=%d bytes assignment=%q",
			ref(m.InstanceID, m.MemberID), m.ClientID, m.ClientHost,
			len(m.ProtocolMetadata), m.MemberAssignment)
	}
	return s
}

func code(c int16) string { return kafka.Code(c).String() }

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func ref(instance *string, member string) string {
	if instance == nil {
		return member
	}
	return *instance + ":" + member
}

func topicName(name string, id kafka.TopicID) string {
	if id == (kafka.TopicID{}) || name != "" {
		return name
	}
	return fmt.Sprintf("<%d>", id[15])
}
