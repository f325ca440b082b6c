package api

// ElectLeaders 0-2, AlterPartitionReassignments 0-1, ListPartitionReassignments 0,
// UnregisterBroker 0, DescribeQuorum 0-2, AddRaftVoter 0-1, RemoveRaftVoter 0: what a
// cluster's operator asks. The controller decides; the quorum describes and changes
// itself, at its leader.

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/wire"
)

// Quorum is the controller quorum.
type Quorum interface {
	// Describe returns *quorum.NotLeaderError on a node that does not lead.
	Describe(context.Context) (quorum.Description, error)
	// AddVoter and RemoveVoter return when the change is made; on a node that does
	// not lead *quorum.NotLeaderError too.
	AddVoter(context.Context, quorum.Member) error
	RemoveVoter(ctx context.Context, id kafka.BrokerID, directory [16]byte) error
	RemoveLearner(ctx context.Context, id kafka.BrokerID, directory [16]byte) error
}

// Peers sends requests to other brokers' cluster listeners.
type Peers interface {
	Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error)
}

func (s *Services) electLeaders(ctx context.Context, w *wire.Request, req *kmsg.ElectLeadersRequest) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp, err := s.Control.ElectLeaders(ctx, req)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.ElectLeadersResponse)
		resp.ErrorCode = int16(codeOf(err))
	}
	if controller.IsUnclean(req) {
		s.logUnclean(w, resp)
	}
	return resp
}

// logUnclean says who asked for leaders that may lack records, and got them. The brokers
// that lead now log where their logs end, and those that lose records which.
func (s *Services) logUnclean(w *wire.Request, resp *kmsg.ElectLeadersResponse) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				s.Logger.Warn("a leader was elected without being in sync because a client asked for it", "topic", t.Topic,
					"partition", p.Partition, "client_id", w.ClientID, "client", w.Conn.RemoteAddr().String())
			}
		}
	}
}

func (s *Services) alterReassignments(
	ctx context.Context, _ *wire.Request, req *kmsg.AlterPartitionAssignmentsRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp, err := s.Control.AlterPartitionReassignments(ctx, req)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
	}
	return resp
}

func (s *Services) listReassignments(
	ctx context.Context, _ *wire.Request, req *kmsg.ListPartitionReassignmentsRequest,
) kmsg.Response {
	resp, err := s.Control.ListPartitionReassignments(ctx, req)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
	}
	return resp
}

func (s *Services) unregisterBroker(
	ctx context.Context, _ *wire.Request, req *kmsg.UnregisterBrokerRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	resp, err := s.Control.UnregisterBroker(ctx, req)
	if err != nil {
		resp = req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
	}
	return resp
}

// metadataTopic is what Kafka calls the quorum's log.
const metadataTopic = "__cluster_metadata"

// describeQuorum answers for the quorum's leader, or has it answer.
func (s *Services) describeQuorum(
	ctx context.Context, _ *wire.Request, req *kmsg.DescribeQuorumRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	d, err := s.Quorum.Describe(ctx)
	if answer, ok := s.atLeader(ctx, err, req); ok {
		return answer
	}
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
		return resp
	}
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, describedQuorum(t.Topic, p.Partition, d))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for _, m := range slices.Concat(d.Voters, d.Learners) {
		resp.Nodes = append(resp.Nodes, quorumNode(m))
	}
	return resp
}

// atLeader has the quorum's leader answer, where this node does not lead.
func (s *Services) atLeader(ctx context.Context, err error, req kmsg.Request) (kmsg.Response, bool) {
	var elsewhere *quorum.NotLeaderError
	if !errors.As(err, &elsewhere) || elsewhere.Leader == kafka.NoBroker || s.Peers == nil {
		return nil, false
	}
	version := req.GetVersion()
	answer, err := s.Peers.Do(ctx, elsewhere.Leader, req)
	req.SetVersion(version)
	if err != nil {
		return nil, false
	}
	answer.SetVersion(version)
	return answer, true
}

// addRaftVoter makes a broker that follows the metadata one that elects the
// controller.
func (s *Services) addRaftVoter(ctx context.Context, _ *wire.Request, req *kmsg.AddRaftVoterRequest) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	m := quorum.Member{ID: kafka.BrokerID(req.VoterID), Directory: req.VoterDirectoryID}
	if len(req.Listeners) > 0 {
		l := &req.Listeners[0]
		m.Address = net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
	}
	err := s.Quorum.AddVoter(ctx, m)
	if answer, ok := s.atLeader(ctx, err, req); ok {
		return answer
	}
	resp := req.ResponseKind().(*kmsg.AddRaftVoterResponse)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
	}
	return resp
}

// removeRaftVoter takes a voter out of the quorum. It takes a learner too: one that is
// stopped for good would be listed for ever, since unlike Kafka's observers it is a
// member.
func (s *Services) removeRaftVoter(
	ctx context.Context, _ *wire.Request, req *kmsg.RemoveRaftVoterRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	err := s.Quorum.RemoveVoter(ctx, kafka.BrokerID(req.VoterID), req.VoterDirectoryID)
	if member := new(quorum.MemberError); errors.As(err, &member) && member.Problem == quorum.NotMember {
		err = s.Quorum.RemoveLearner(ctx, kafka.BrokerID(req.VoterID), req.VoterDirectoryID)
	}
	if answer, ok := s.atLeader(ctx, err, req); ok {
		return answer
	}
	resp := req.ResponseKind().(*kmsg.RemoveRaftVoterResponse)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
	}
	return resp
}

func describedQuorum(topic string, partition int32, d quorum.Description) kmsg.DescribeQuorumResponseTopicPartition {
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.Partition, p.LeaderID = partition, int32(kafka.NoBroker)
	if topic != metadataTopic || partition != 0 {
		p.ErrorCode = int16(kafka.ErrUnknownTopicOrPartition)
		p.ErrorMessage = ptr("the quorum's log is partition 0 of " + metadataTopic)
		return p
	}
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = int32(d.Leader), int32(d.Term), int64(d.CommitIndex)
	for _, m := range d.Voters {
		p.CurrentVoters = append(p.CurrentVoters, quorumReplica(m))
	}
	for _, m := range d.Learners {
		p.Observers = append(p.Observers, quorumReplica(m))
	}
	return p
}

func quorumReplica(m quorum.Replica) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	r := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	r.ReplicaID, r.ReplicaDirectoryID, r.LogEndOffset = int32(m.ID), m.Directory, int64(m.Match)
	r.LastFetchTimestamp, r.LastCaughtUpTimestamp = millis(m.LastContact), millis(m.LastCaughtUp)
	return r
}

// millis is a time in milliseconds, -1 for never.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func quorumNode(m quorum.Replica) kmsg.DescribeQuorumResponseNode {
	n := kmsg.NewDescribeQuorumResponseNode()
	n.NodeID = int32(m.ID)
	host, text, err := net.SplitHostPort(m.Address)
	port, bad := strconv.ParseUint(text, 10, 16)
	if err == nil && bad == nil {
		l := kmsg.NewDescribeQuorumResponseNodeListener()
		l.Name, l.Host, l.Port = metadata.ClusterListener, host, uint16(port)
		n.Listeners = append(n.Listeners, l)
	}
	return n
}
