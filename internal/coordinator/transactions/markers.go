package transactions

import (
	"bytes"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// Tagged fields of ours, far from Kafka's, whose brokers leave them out: the decision that a
// marker is of, the leader epochs of the partitions of a topic, and the topic's id.
const (
	decisionTag     = 10_000
	leaderEpochsTag = 10_001
	topicIDTag      = 10_002
)

// WriteRequest is the request that has another broker write markers, in their order.
func WriteRequest(markers []Marker) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = req.MaxVersion()
	for i := range markers {
		m := &markers[i]
		if n := len(req.Markers); n == 0 || !sameTransaction(&req.Markers[n-1], m) {
			next := kmsg.WriteTxnMarkersRequestMarker{
				ProducerID: int64(m.ProducerID), ProducerEpoch: int16(m.ProducerEpoch), Committed: m.Commit,
				CoordinatorEpoch: m.CoordinatorEpoch, TransactionVersion: int8(m.Version),
			}
			if m.Decision > 0 {
				next.UnknownTags.Set(decisionTag, binary.BigEndian.AppendUint64(nil, uint64(m.Decision)))
			}
			req.Markers = append(req.Markers, next)
		}
		rm := &req.Markers[len(req.Markers)-1]
		if n := len(rm.Topics); n == 0 || rm.Topics[n-1].Topic != m.Partition.Topic ||
			TopicIDOf(&rm.Topics[n-1].UnknownTags) != m.TopicID {
			next := kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: m.Partition.Topic}
			tagTopicID(&next.UnknownTags, m.TopicID)
			rm.Topics = append(rm.Topics, next)
		}
		t := &rm.Topics[len(rm.Topics)-1]
		t.Partitions = append(t.Partitions, m.Partition.Partition)
		epochs := binary.BigEndian.AppendUint32(tagged(&t.UnknownTags, leaderEpochsTag), uint32(m.LeaderEpoch))
		t.UnknownTags.Set(leaderEpochsTag, epochs)
	}
	return req
}

// tagged returns the bytes of a tagged field, nil if it is not there.
func tagged(tags *kmsg.Tags, tag uint32) (value []byte) {
	tags.Each(func(t uint32, v []byte) {
		if t == tag {
			value = v
		}
	})
	return value
}

// decisionOf returns which decision a marker is of, 0 if nobody says.
func decisionOf(r *kmsg.WriteTxnMarkersRequestMarker) kafka.Offset {
	if b := tagged(&r.UnknownTags, decisionTag); len(b) == 8 {
		return kafka.Offset(binary.BigEndian.Uint64(b))
	}
	return 0
}

// leaderEpochsOf returns the leader epoch of each partition of a topic, nil if nobody says.
func leaderEpochsOf(t *kmsg.WriteTxnMarkersRequestMarkerTopic) []byte {
	if b := tagged(&t.UnknownTags, leaderEpochsTag); len(b) == 4*len(t.Partitions) {
		return b
	}
	return nil
}

// TopicIDOf returns the id of a topic in a request of another broker, zero if nobody says.
func TopicIDOf(tags *kmsg.Tags) (id kafka.TopicID) {
	if b := tagged(tags, topicIDTag); len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

func tagTopicID(tags *kmsg.Tags, id kafka.TopicID) {
	if !id.IsZero() {
		tags.Set(topicIDTag, bytes.Clone(id[:]))
	}
}

func sameTransaction(r *kmsg.WriteTxnMarkersRequestMarker, m *Marker) bool {
	return r.ProducerID == int64(m.ProducerID) && r.ProducerEpoch == int16(m.ProducerEpoch) &&
		r.Committed == m.Commit && r.CoordinatorEpoch == m.CoordinatorEpoch && decisionOf(r) == m.Decision
}

// MarkersOf returns the markers of a request, in order.
func MarkersOf(req *kmsg.WriteTxnMarkersRequest) []Marker {
	var markers []Marker
	for i := range req.Markers {
		r := &req.Markers[i]
		m := Marker{
			ProducerID: kafka.ProducerID(r.ProducerID), ProducerEpoch: kafka.ProducerEpoch(r.ProducerEpoch),
			CoordinatorEpoch: r.CoordinatorEpoch, Commit: r.Committed, Version: int16(r.TransactionVersion),
			Decision: decisionOf(r),
		}
		for k := range r.Topics {
			t := &r.Topics[k]
			epochs := leaderEpochsOf(t)
			m.TopicID = TopicIDOf(&t.UnknownTags)
			for n, p := range t.Partitions {
				m.Partition, m.LeaderEpoch = kafka.TopicPartition{Topic: t.Topic, Partition: p}, kafka.NoLeaderEpoch
				if epochs != nil {
					m.LeaderEpoch = kafka.LeaderEpoch(binary.BigEndian.Uint32(epochs[4*n:]))
				}
				markers = append(markers, m)
			}
		}
	}
	return markers
}

// WriteResponse is the answer to a request whose markers, in order, had these codes.
func WriteResponse(req *kmsg.WriteTxnMarkersRequest, codes []kafka.Code) *kmsg.WriteTxnMarkersResponse {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	n := 0
	for _, r := range req.Markers {
		m := kmsg.WriteTxnMarkersResponseMarker{ProducerID: r.ProducerID}
		for _, t := range r.Topics {
			rt := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{
					Partition: p, ErrorCode: int16(codes[n]),
				})
				n++
			}
			m.Topics = append(m.Topics, rt)
		}
		resp.Markers = append(resp.Markers, m)
	}
	return resp
}

// CodesOf returns the code of each marker in an answer; those that are not in it
// failed.
func CodesOf(markers []Marker, resp *kmsg.WriteTxnMarkersResponse) []kafka.Code {
	type key struct {
		producer  int64
		partition kafka.TopicPartition
	}
	answered := map[key]kafka.Code{}
	for _, r := range resp.Markers {
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				at := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				answered[key{r.ProducerID, at}] = kafka.Code(p.ErrorCode)
			}
		}
	}
	codes := make([]kafka.Code, len(markers))
	for i, m := range markers {
		code, ok := answered[key{int64(m.ProducerID), m.Partition}]
		if !ok {
			code = kafka.ErrUnknownServerError
		}
		codes[i] = code
	}
	return codes
}
