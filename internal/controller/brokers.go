package controller

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// FoundCluster returns the record with which a cluster begins; nil when it has
// begun.
func (s *State) FoundCluster(clusterID string) []metadata.Record {
	if s.image.ClusterID() != "" {
		return nil
	}
	return []metadata.Record{&metadata.ClusterRecord{ClusterID: clusterID, Level: metadata.CurrentLevel}}
}

// RegisterBroker decides about a broker that has started. It gets a new broker
// epoch, and, unless it says that it went down cleanly from the last one
// (PreviousBrokerEpoch, KIP-966), what it leads gets new leader epochs: after a
// crash its logs may end earlier than readers have seen, and a new epoch is what
// tells them.
func (s *State) RegisterBroker(
	req *kmsg.BrokerRegistrationRequest,
) (*kmsg.BrokerRegistrationResponse, []metadata.Record, error) {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	if err := s.checkRegistration(req); err != nil {
		resp.ErrorCode = int16(err.Code)
		return resp, nil, err
	}
	b := metadata.Broker{
		ID: kafka.BrokerID(req.BrokerID), Epoch: s.image.LastBrokerEpoch() + 1,
		Incarnation: req.IncarnationID, Directories: slices.Clone(req.LogDirs),
	}
	if req.Rack != nil {
		b.Rack = *req.Rack
	}
	for _, l := range req.Listeners {
		b.Endpoints = append(b.Endpoints, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port)})
	}
	resp.BrokerEpoch = int64(b.Epoch)
	records := []metadata.Record{&metadata.BrokerRecord{Broker: b}}
	old, known := s.image.Broker(b.ID)
	if known && req.PreviousBrokerEpoch != int64(old.Epoch) {
		records = append(records, &metadata.LeadersRestarted{Broker: b.ID})
	}
	return resp, records, nil
}

func (s *State) checkRegistration(req *kmsg.BrokerRegistrationRequest) *kafka.Error {
	switch {
	case req.ClusterID != s.image.ClusterID():
		return refuse(kafka.ErrInconsistentClusterID, "broker %d belongs to cluster %q, and this is cluster %q: "+
			"check its voters and its data directory", req.BrokerID, req.ClusterID, s.image.ClusterID())
	case req.BrokerID < 0:
		return refuse(kafka.ErrInvalidRegistration, "a broker cannot have the id %d", req.BrokerID)
	case len(req.Listeners) == 0:
		return refuse(kafka.ErrInvalidRegistration, "broker %d advertises no address: clients could not find it",
			req.BrokerID)
	}
	return nil
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
		return refuse(kafka.ErrStaleBrokerEpoch, "broker %d is not registered with epoch %d", id, epoch)
	}
	return nil
}
