package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// FoundCluster begins a cluster under an id where there is none, and returns the
// id of the cluster that there is then.
func (s *State) FoundCluster(clusterID string) (string, []metadata.Record) {
	if id := s.image.ClusterID(); id != "" {
		return id, nil
	}
	return clusterID, []metadata.Record{
		&metadata.ClusterRecord{ClusterID: clusterID, Level: metadata.CurrentLevel},
	}
}

// producerIDBlock is how many producer ids a broker gets at a time, as in Kafka.
const producerIDBlock = 1000

// AllocateProducerIDs hands out a block of producer ids.
func (s *State) AllocateProducerIDs(
	req *kmsg.AllocateProducerIDsRequest,
) (*kmsg.AllocateProducerIDsResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	resp.ProducerIDStart = -1
	next := s.image.NextProducerID()
	switch {
	case s.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch) != nil:
		resp.ErrorCode = int16(kafka.ErrStaleBrokerEpoch)
		return resp, nil
	case next > math.MaxInt64-producerIDBlock:
		resp.ErrorCode = int16(kafka.ErrUnknownServerError)
		return resp, nil
	}
	resp.ProducerIDStart, resp.ProducerIDLen = int64(next), producerIDBlock
	return resp, []metadata.Record{&metadata.ProducerIDs{Next: next + producerIDBlock}}
}

// checkBrokerEpoch fences what an earlier process of a broker asks for.
func (s *State) checkBrokerEpoch(id int32, epoch int64) *kafka.Error {
	b, ok := s.image.Broker(kafka.BrokerID(id))
	if !ok || int64(b.Epoch) != epoch {
		return refuse(kafka.ErrStaleBrokerEpoch, "broker %d is not registered with epoch "+
			"%d", id, epoch)
	}
	return nil
}
