package controller

import (
	"math"
	"slices"

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

// RegisterBroker decides about a broker that has started. It gets a new broker
// epoch, and, unless it says that it went down cleanly from the last one
// (PreviousBrokerEpoch, KIP-966), what it leads gets new leader epochs: after a
// crash its logs may end earlier than readers have seen, and a new epoch is what
// tells them.
func (s *State) RegisterBroker(
	req *kmsg.BrokerRegistrationRequest,
) (*kmsg.BrokerRegistrationResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	if code := s.checkRegistration(req); code != kafka.ErrNone {
		resp.ErrorCode = int16(code)
		return resp, nil
	}
	b := metadata.Broker{
		ID: kafka.BrokerID(req.BrokerID), Epoch: s.image.LastBrokerEpoch() + 1,
		Incarnation: req.IncarnationID, Directories: slices.Clone(req.LogDirs),
	}
	if req.Rack != nil {
		b.Rack = *req.Rack
	}
	for _, l := range req.Listeners {
		e := metadata.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port)}
		b.Endpoints = append(b.Endpoints, e)
	}
	resp.BrokerEpoch = int64(b.Epoch)
	records := []metadata.Record{&metadata.BrokerRecord{Broker: b}}
	old, known := s.image.Broker(b.ID)
	if known && req.PreviousBrokerEpoch != int64(old.Epoch) {
		records = append(records, &metadata.LeadersRestarted{Broker: b.ID})
	}
	return resp, records
}

// checkRegistration says what is wrong with a registration. The answer has no room
// for words.
func (s *State) checkRegistration(req *kmsg.BrokerRegistrationRequest) kafka.Code {
	switch {
	case req.ClusterID != s.image.ClusterID():
		return kafka.ErrInconsistentClusterID
	case req.BrokerID < 0 || len(req.Listeners) == 0:
		return kafka.ErrInvalidRegistration
	}
	return kafka.ErrNone
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
