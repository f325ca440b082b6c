package api

// ApiVersions 0-5, Metadata 0-13, DescribeCluster 0-2, FindCoordinator 0-6,
// DescribeTopicPartitions 0: where clients learn what to ask and whom.

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/wire"
)

// notAsked is the protocol's "authorized operations were not asked for".
const notAsked = math.MinInt32

// Operations allowed without an authorizer, as bits of AclOperation codes: all
// those that Kafka lists for a topic and for a cluster.
const (
	allTopicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	allClusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// anyVersion answers ApiVersions requests of versions that are not known, without
// a look at their bodies: a client must be able to learn what this broker speaks
// before it speaks it. The answer has the body of version 0, which every client
// can read.
func (s *Services) anyVersion(
	known func(context.Context, *wire.Request) wire.Response,
) func(context.Context, *wire.Request) wire.Response {
	return func(ctx context.Context, w *wire.Request) wire.Response {
		if !w.UnsupportedVersion {
			return known(ctx, w)
		}
		w.Release()
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode, resp.ApiKeys = int16(kafka.ErrUnsupportedVersion), s.versions
		return s.memory.encode(w, resp)
	}
}

// apiVersions answers the versions that are known.
func (s *Services) apiVersions(_ context.Context, _ *wire.Request, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := &kmsg.ApiVersionsResponse{Version: req.Version}
	resp.Default()
	resp.ApiKeys = s.versions
	announceFeatures(resp)
	if req.Version >= 5 {
		resp.ErrorCode = int16(s.checkIdentity(req))
	}
	if req.Version >= 3 && !softwareNameValid(req.ClientSoftwareName, req.ClientSoftwareVersion) {
		resp.ErrorCode = int16(kafka.ErrInvalidRequest)
		resp.ApiKeys = nil
	}
	return resp
}

// checkIdentity tells a client that believes to talk to another cluster or node
// to start over from its bootstrap addresses (KIP-1242).
func (s *Services) checkIdentity(req *kmsg.ApiVersionsRequest) kafka.Code {
	if req.ClusterID != nil && *req.ClusterID != s.image().ClusterID() {
		return kafka.ErrRebootstrapRequired
	}
	if req.NodeID >= 0 && kafka.BrokerID(req.NodeID) != s.NodeID {
		return kafka.ErrRebootstrapRequired
	}
	return kafka.ErrNone
}

// softwareNameValid is KIP-511's rule for what a client calls itself.
func softwareNameValid(names ...string) bool {
	for _, n := range names {
		ok := n != ""
		for i := range len(n) {
			c := n[i]
			alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
			inner := i > 0 && i < len(n)-1 && (c == '-' || c == '.')
			ok = ok && (alnum || inner)
		}
		if !ok {
			return false
		}
	}
	return true
}

func (s *Services) metadata(ctx context.Context, w *wire.Request, req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	image := s.image()
	if all := req.Topics == nil || req.Version == 0 && len(req.Topics) == 0; all {
		for _, t := range image.Topics() {
			resp.Topics = append(resp.Topics, describeTopic(t, req.IncludeTopicAuthorizedOperations))
		}
	} else {
		refused := s.maybeAutoCreate(ctx, req)
		image = s.image()
		resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
		for _, t := range eachOnce(req.Topics, topicAsked) {
			resp.Topics = append(resp.Topics, s.metadataTopic(image, t, req))
			last := &resp.Topics[len(resp.Topics)-1]
			if why, ok := refused[text(last.Topic)]; ok && last.ErrorCode != 0 {
				last.ErrorCode = int16(why.Code)
			}
		}
	}
	for _, b := range image.Brokers() {
		if b.Fenced {
			continue // Nobody is to be sent there.
		}
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{
			NodeID: int32(b.ID), Host: b.Host, Port: b.Port, Rack: ptr(b.Rack),
		})
	}
	s.sendElsewhere(w, resp)
	cluster := image.ClusterID()
	resp.ClusterID, resp.ControllerID = &cluster, int32(image.Controller())
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = allClusterOperations
	}
	if s.Reach != nil {
		s.Reach.Asked(w)
	}
	return resp
}

// askedTopic is what a Metadata request says of a topic.
type askedTopic struct {
	name string
	id   [16]byte
}

func topicAsked(t *kmsg.MetadataRequestTopic) askedTopic { return askedTopic{text(t.Topic), t.TopicID} }

// eachOnce drops elements of a request that ask for the same again: an answer
// must not grow with how often a request says a thing. It changes the slice.
func eachOnce[T any, K comparable](asked []T, key func(*T) K) []T {
	if len(asked) < 2 {
		return asked
	}
	seen := make(map[K]bool, len(asked))
	once := asked[:0]
	for i := range asked {
		if k := key(&asked[i]); !seen[k] {
			seen[k] = true
			once = append(once, asked[i])
		}
	}
	return once
}

func (s *Services) metadataTopic(
	image *metadata.Image, t kmsg.MetadataRequestTopic, req *kmsg.MetadataRequest,
) kmsg.MetadataResponseTopic {
	var meta *metadata.Topic
	byID := t.Topic == nil || *t.Topic == ""
	if byID {
		meta = image.TopicByID(t.TopicID)
	} else {
		meta = image.Topic(*t.Topic)
	}
	if meta != nil {
		return describeTopic(meta, req.IncludeTopicAuthorizedOperations)
	}
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.AuthorizedOperations = t.Topic, t.TopicID, notAsked
	switch {
	case byID && !kafka.TopicID(t.TopicID).IsZero():
		out.ErrorCode = int16(kafka.ErrUnknownTopicID)
	case byID:
		out.ErrorCode = int16(kafka.ErrInvalidTopicException)
	case metadata.CheckTopicName(*t.Topic) != nil:
		out.ErrorCode = int16(kafka.ErrInvalidTopicException)
	default:
		out.ErrorCode = int16(kafka.ErrUnknownTopicOrPartition)
	}
	if req.Version < 12 && out.Topic == nil {
		out.Topic = new(string)
	}
	return out
}

func describeTopic(t *metadata.Topic, operations bool) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	name := t.Name
	out.Topic, out.TopicID, out.IsInternal = &name, t.ID, metadata.IsInternal(t.Name)
	out.AuthorizedOperations = notAsked
	if operations {
		out.AuthorizedOperations = allTopicOperations
	}
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		p := &t.Partitions[i]
		rp := &out.Partitions[i]
		rp.Default()
		rp.Partition, rp.Leader, rp.LeaderEpoch = int32(i), int32(p.Leader), int32(p.LeaderEpoch)
		rp.Replicas, rp.ISR = ids(p.Replicas), ids(p.ISR)
		rp.OfflineReplicas = []int32{}
		if p.Leader == kafka.NoBroker {
			rp.ErrorCode = int16(kafka.ErrLeaderNotAvailable)
		}
	}
	return out
}

func ids(in []kafka.BrokerID) []int32 {
	out := make([]int32, len(in))
	for i, id := range in {
		out[i] = int32(id)
	}
	return out
}

func (s *Services) describeCluster(
	_ context.Context, _ *wire.Request, req *kmsg.DescribeClusterRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	image := s.image()
	resp.EndpointType, resp.ClusterID = 1, image.ClusterID()
	resp.ControllerID, resp.ClusterAuthorizedOperations = int32(image.Controller()), notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = allClusterOperations
	}
	if req.Version >= 1 && req.EndpointType != 1 {
		resp.EndpointType, resp.ErrorCode = req.EndpointType, int16(kafka.ErrMismatchedEndpointType)
		resp.ErrorMessage = ptr("this is a broker's address, not a controller's: ask for brokers (endpoint type 1)")
		return resp
	}
	for _, b := range image.Brokers() {
		if b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{
			NodeID: int32(b.ID), Host: b.Host, Port: b.Port, Rack: ptr(b.Rack), IsFenced: b.Fenced,
		})
	}
	return resp
}

// Kinds of coordinators.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
)

func (s *Services) findCoordinator(
	ctx context.Context, w *wire.Request, req *kmsg.FindCoordinatorRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		c := s.coordinatorOf(ctx, w, req.CoordinatorType, req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, s.coordinatorOf(ctx, w, req.CoordinatorType, key))
	}
	return resp
}

func (s *Services) coordinatorOf(
	ctx context.Context, w *wire.Request, kind int8, key string,
) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	refuse := func(code kafka.Code, message string) kmsg.FindCoordinatorResponseCoordinator {
		out.ErrorCode, out.ErrorMessage = int16(code), ptr(message)
		return out
	}
	find := s.Groups.BrokerOf
	switch {
	case kind == transactionCoordinator && key == "":
		return refuse(kafka.ErrInvalidRequest, "the transactional id is empty: name it")
	case kind == transactionCoordinator:
		find = s.Transactions.BrokerOf
	case kind != groupCoordinator:
		return refuse(kafka.ErrInvalidRequest, "coordinators of this kind are not offered here: ask for that of a group "+
			"(type 0) or of a transactional id (type 1)")
	case key == "":
		return refuse(kafka.ErrInvalidGroupID, "the group id is empty: name the group")
	}
	leader, err := find(ctx, key)
	if errors.Is(err, coordinator.ErrInDoubt) && kind == groupCoordinator && s.findsNoOther(w.Conn) {
		err = nil
	}
	if err != nil {
		code := codeOf(err)
		if code.Retriable() {
			code = kafka.ErrCoordinatorNotAvailable // What every client tries again after.
		}
		return refuse(code, messageOf(err))
	}
	b, ok := s.image().Broker(leader)
	if !ok {
		return refuse(kafka.ErrCoordinatorNotAvailable, "the coordinator's broker is not known yet: try again")
	}
	out.NodeID, out.Host, out.Port = int32(b.ID), b.Host, b.Port
	return out
}

func (s *Services) describeTopicPartitions(
	_ context.Context, _ *wire.Request, req *kmsg.DescribeTopicPartitionsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	image := s.image()
	var names []string
	if len(req.Topics) == 0 {
		for _, t := range image.Topics() {
			names = append(names, t.Name)
		}
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	from := int32(0)
	if req.Cursor != nil {
		i, _ := slices.BinarySearch(names, req.Cursor.Topic)
		if names = names[i:]; len(names) > 0 && names[0] == req.Cursor.Topic {
			from = max(req.Cursor.Partition, 0)
		}
	}
	left := s.Broker().MaxRequestPartitionSizeLimit
	if req.ResponsePartitionLimit > 0 {
		left = min(left, req.ResponsePartitionLimit)
	}
	for _, name := range names {
		if left <= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: from}
			break
		}
		topic, next := describePartitions(image.Topic(name), name, from, left)
		resp.Topics = append(resp.Topics, topic)
		left -= int32(max(len(topic.Partitions), 1))
		if from = 0; next > 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			break
		}
	}
	return resp
}

// describePartitions lists at most limit partitions from the given one on, and
// returns where to go on, or 0.
func describePartitions(
	t *metadata.Topic, name string, from, limit int32,
) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.AuthorizedOperations = &name, notAsked
	if t == nil {
		out.ErrorCode = int16(kafka.ErrUnknownTopicOrPartition)
		if metadata.CheckTopicName(name) != nil {
			out.ErrorCode = int16(kafka.ErrInvalidTopicException)
		}
		return out, 0
	}
	out.TopicID, out.IsInternal = t.ID, metadata.IsInternal(t.Name)
	out.AuthorizedOperations = allTopicOperations
	end := min(int32(len(t.Partitions)), from+limit)
	for i := from; i < end; i++ {
		p := &t.Partitions[i]
		rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		rp.Partition, rp.LeaderID, rp.LeaderEpoch = i, int32(p.Leader), int32(p.LeaderEpoch)
		rp.Replicas, rp.ISR = ids(p.Replicas), ids(p.ISR)
		rp.EligibleLeaderReplicas, rp.LastKnownELR = ids(p.Eligible), ids(p.LastEligible)
		if p.Leader == kafka.NoBroker {
			rp.ErrorCode = int16(kafka.ErrLeaderNotAvailable)
		}
		out.Partitions = append(out.Partitions, rp)
	}
	if int(end) < len(t.Partitions) {
		return out, end
	}
	return out, 0
}
