package api

// ListOffsets, versions 1-11, and OffsetForLeaderEpoch, versions 2-4.
//
//	v2 isolation   v4 leader epoch   v6 flexible   v7 max timestamp (KIP-734)
//	v8 earliest local (KIP-405)      v9 latest tiered   v11 earliest pending upload
//
// Without tiered storage every record is local, nothing is in a tier, and
// nothing waits for an upload: the special timestamps are answered so.
//
// Unlike in Kafka, a leader that has not heard the controller for long asks its replicas
// before it says where a partition ends: partition.Confirm.

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/wire"
)

// The timestamps that stand for a place in the log.
const (
	latestTimestamp                = -1
	earliestTimestamp              = -2
	maxTimestamp                   = -3
	earliestLocalTimestamp         = -4
	latestTieredTimestamp          = -5
	earliestPendingUploadTimestamp = -6
)

func (s *Services) listOffsets(
	ctx context.Context, _ *wire.Request, req *kmsg.ListOffsetsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	confirmed := s.confirmEnds(ctx, req)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for i := range t.Partitions {
			rp := s.listOffset(req, t.Topic, &t.Partitions[i])
			if asksForEnd(t.Partitions[i].Timestamp) && rp.ErrorCode == 0 {
				if err := confirmed(t.Topic, rp.Partition); err != nil {
					rp.ErrorCode, rp.Offset, rp.Timestamp, rp.LeaderEpoch = int16(codeOf(err)), -1, -1, -1
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// asksForEnd says whether the answer follows from where the log ends.
func asksForEnd(timestamp int64) bool {
	return timestamp >= 0 || timestamp == latestTimestamp || timestamp == maxTimestamp
}

// confirmEnds finds out which partitions this broker leads for sure. One that was replaced
// without its knowledge would tell an end that was passed since, and who reads up to there
// would miss what was acknowledged before it asked. The function that is returned says what
// came of it, and costs nothing where no other broker can have taken over.
func (s *Services) confirmEnds(
	ctx context.Context, req *kmsg.ListOffsetsRequest,
) func(topic string, partition int32) error {
	if s.Leased == nil || s.Leased() {
		return func(string, int32) error { return nil }
	}
	waits := map[kafka.TopicPartition]func(context.Context) error{}
	for i := range req.Topics {
		for _, rp := range req.Topics[i].Partitions {
			at := kafka.TopicPartition{Topic: req.Topics[i].Topic, Partition: rp.Partition}
			if waits[at] != nil || !asksForEnd(rp.Timestamp) {
				continue
			}
			if p, err := s.leading(at.Topic, at.Partition, kafka.NoLeaderEpoch); err == nil {
				waits[at] = p.Confirm(p.LeaderEpoch())
			}
		}
	}
	until := time.Now().Add(partition.ConfirmTimeout)
	return func(topic string, i int32) error {
		wait := waits[kafka.TopicPartition{Topic: topic, Partition: i}]
		if wait == nil {
			return nil // Refused for another reason.
		}
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		if err := wait(ctx); err != nil && !(errors.Is(err, context.DeadlineExceeded) && s.Leased()) {
			return partition.ErrNotLeader
		}
		return nil
	}
}

func (s *Services) listOffset(
	req *kmsg.ListOffsetsRequest, topic string, rp *kmsg.ListOffsetsRequestTopicPartition,
) kmsg.ListOffsetsResponseTopicPartition {
	out := kmsg.NewListOffsetsResponseTopicPartition()
	out.Partition, out.Offset, out.Timestamp, out.LeaderEpoch = rp.Partition, -1, -1, -1
	p, err := s.leading(topic, rp.Partition, kafka.LeaderEpoch(rp.CurrentLeaderEpoch))
	switch {
	case err != nil:
		out.ErrorCode = int16(codeOf(err))
		return out
	case rp.Timestamp < 0 && !timestampKnown(rp.Timestamp, req.Version):
		out.ErrorCode = int16(kafka.ErrUnsupportedVersion)
		return out
	}
	if err := p.Settled(); err != nil && asksForEnd(rp.Timestamp) {
		// What would be told may be less than the leader before told (KIP-207).
		if out.ErrorCode = int16(codeOf(err)); req.Version < 5 && errors.Is(err, partition.ErrNotSettled) {
			out.ErrorCode = int16(kafka.ErrLeaderNotAvailable)
		}
		return out
	}
	bound := p.HighWatermark()
	if partition.Isolation(req.IsolationLevel) == partition.ReadCommitted {
		bound = p.LastStableOffset()
	}
	log := p.Log()
	set := func(offset kafka.Offset, timestamp int64, epoch kafka.LeaderEpoch) {
		out.Offset, out.Timestamp, out.LeaderEpoch = int64(offset), timestamp, int32(epoch)
	}
	switch rp.Timestamp {
	case latestTimestamp:
		set(bound, -1, p.LeaderEpoch())
	case earliestTimestamp, earliestLocalTimestamp, earliestPendingUploadTimestamp:
		start := log.LogStartOffset()
		epoch, err := log.EpochAt(start)
		if out.ErrorCode = int16(codeOf(err)); err == nil {
			set(start, -1, epoch)
		}
	case maxTimestamp:
		at, found, err := log.OffsetOfMaxTimestamp(bound)
		if out.ErrorCode = int16(codeOf(err)); err == nil && found {
			set(at.Offset, at.Timestamp, at.LeaderEpoch)
		}
	case latestTieredTimestamp:
		set(kafka.NoOffset, -1, p.LeaderEpoch())
	default:
		at, found, err := log.OffsetForTimestamp(rp.Timestamp, bound)
		if out.ErrorCode = int16(codeOf(err)); err == nil && found {
			set(at.Offset, at.Timestamp, at.LeaderEpoch)
		}
	}
	return out
}

// timestampKnown says whether a timestamp that stands for a place is one in a
// version of the request.
func timestampKnown(timestamp int64, version int16) bool {
	switch timestamp {
	case latestTimestamp, earliestTimestamp:
		return true
	case maxTimestamp:
		return version >= 7
	case earliestLocalTimestamp:
		return version >= 8
	case latestTieredTimestamp:
		return version >= 9
	case earliestPendingUploadTimestamp:
		return version >= 11
	}
	return false
}

// leading finds a partition that this broker leads under the epoch the client
// believes in.
func (s *Services) leading(topic string, i int32, believed kafka.LeaderEpoch) (*partition.Partition, error) {
	view, code := s.resolve(topic, kafka.TopicID{}, false)
	if code != kafka.ErrNone {
		return nil, &kafka.Error{Code: code, Message: topics.Unknown(topic, kafka.TopicID{})}
	}
	p := view.Partition(i)
	if p == nil {
		code, message := view.NoPartition(i)
		return nil, &kafka.Error{Code: code, Message: message}
	}
	return p, p.Leads(believed)
}

func (s *Services) offsetForLeaderEpoch(
	_ context.Context, _ *wire.Request, req *kmsg.OffsetForLeaderEpochRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, rp := range t.Partitions {
			out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			out.Partition, out.EndOffset, out.LeaderEpoch = rp.Partition, -1, -1
			p, err := s.leading(t.Topic, rp.Partition, kafka.LeaderEpoch(rp.CurrentLeaderEpoch))
			if err == nil {
				var epoch kafka.LeaderEpoch
				var end kafka.Offset
				epoch, end, err = endOfEpoch(p, kafka.LeaderEpoch(rp.LeaderEpoch))
				out.LeaderEpoch, out.EndOffset = int32(epoch), int64(end)
			}
			out.ErrorCode = int16(codeOf(err))
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// endOfEpoch returns where a leader epoch ends. Who has read records of a later epoch than
// this leader's own knows of its successor: "not known" would have it begin anew.
func endOfEpoch(p *partition.Partition, asked kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, error) {
	if current := p.LeaderEpoch(); asked > current {
		return kafka.NoLeaderEpoch, kafka.NoOffset, &partition.UnknownEpochError{Current: current, Requested: asked}
	}
	return p.EndOffsetForEpoch(asked)
}

func (s *Services) deleteRecords(
	ctx context.Context, _ *wire.Request, req *kmsg.DeleteRecordsRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, req.TimeoutMillis)
	defer cancel()
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	var deleted []recordsDeleted // All are deleted first: their followers are waited for together.
	for _, t := range req.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, rp := range t.Partitions {
			out := kmsg.NewDeleteRecordsResponseTopicPartition()
			out.Partition, out.LowWatermark = rp.Partition, -1
			p, to, err := s.deletePartitionRecords(t.Topic, rp.Partition, kafka.Offset(rp.Offset))
			if out.ErrorCode = int16(codeOf(err)); err == nil {
				deleted = append(deleted, recordsDeleted{p, to, len(resp.Topics), len(rt.Partitions)})
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for _, d := range deleted {
		out := &resp.Topics[d.topic].Partitions[d.partition]
		low, err := d.p.AwaitLowWatermark(ctx, d.to)
		if out.ErrorCode = int16(codeOf(err)); err == nil {
			out.LowWatermark = int64(low)
		}
	}
	return resp
}

// recordsDeleted is a partition whose records below an offset are deleted here, and where
// its answer is.
type recordsDeleted struct {
	p                *partition.Partition
	to               kafka.Offset
	topic, partition int
}

// deletePartitionRecords advances the log start offset; -1 stands for the high
// watermark. It returns up to where records are to be deleted on every replica.
func (s *Services) deletePartitionRecords(
	topic string, i int32, to kafka.Offset,
) (*partition.Partition, kafka.Offset, error) {
	p, err := s.leading(topic, i, kafka.NoLeaderEpoch)
	if err != nil {
		return nil, 0, err
	}
	if view, _ := s.resolve(topic, kafka.TopicID{}, false); !view.Config.CleanupDelete {
		return nil, 0, &kafka.Error{
			Code:    kafka.ErrPolicyViolation,
			Message: "records of a topic that is only compacted cannot be deleted by offset",
		}
	}
	if err := p.Settled(); err != nil {
		return nil, 0, err
	}
	if to == -1 {
		to = p.HighWatermark()
	}
	if to < 0 || to > p.HighWatermark() {
		return nil, 0, &kafka.Error{Code: kafka.ErrOffsetOutOfRange}
	}
	return p, to, p.DeleteRecords(to)
}
