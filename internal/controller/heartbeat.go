package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Heartbeat decides what follows from a broker's heartbeat. Most change nothing,
// see IsRoutine. A broker that wants to serve is admitted; one that wants not to
// is fenced. One that wants to shut down gets nothing more to lead, and what it
// leads goes to others; when nothing of it can go any more, it is fenced and told
// to stop.
func (s *State) Heartbeat(
	req *kmsg.BrokerHeartbeatRequest,
) (*kmsg.BrokerHeartbeatResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	b, code := senderOf(s.image, req)
	if code != kafka.ErrNone {
		resp.ErrorCode, resp.IsFenced = int16(code), true
		return resp, nil
	}
	var records []metadata.Record
	switch {
	case req.WantShutdown:
		b, records = s.shutDown(b)
		resp.ShouldShutdown = b.Fenced
	case req.WantFence && !b.Fenced:
		records = s.FenceBrokers([]kafka.BrokerID{b.ID})
		b.Fenced = true
	case !req.WantFence && !b.Available():
		b.Fenced, b.ShuttingDown = false, false
		records = append([]metadata.Record{changed(&b)}, s.admit(b)...)
	}
	resp.IsCaughtUp, resp.IsFenced = !req.WantFence, b.Fenced
	return resp, records
}

// shutDown returns what a broker that wants to shut down is now.
func (s *State) shutDown(b metadata.Broker) (metadata.Broker, []metadata.Record) {
	if b.Fenced {
		return b, nil
	}
	first := !b.ShuttingDown
	b.ShuttingDown = true
	records, _ := s.withdraw(b)
	if first {
		return b, append(records, changed(&b))
	}
	if len(records) > 0 {
		return b, records
	}
	records = s.FenceBrokers([]kafka.BrokerID{b.ID})
	b.Fenced = true
	return b, records
}

// IsRoutine answers a heartbeat that changes nothing, from an image. It returns
// nil for one that needs a decision.
func IsRoutine(
	image *metadata.Image, req *kmsg.BrokerHeartbeatRequest,
) *kmsg.BrokerHeartbeatResponse {
	b, code := senderOf(image, req)
	if code != kafka.ErrNone || req.WantShutdown || req.WantFence != b.Fenced || b.ShuttingDown {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	resp.IsCaughtUp, resp.IsFenced = !req.WantFence, b.Fenced
	return resp
}

// senderOf returns the broker that sends a heartbeat.
func senderOf(
	image *metadata.Image, req *kmsg.BrokerHeartbeatRequest,
) (metadata.Broker, kafka.Code) {
	b, known := image.Broker(kafka.BrokerID(req.BrokerID))
	switch {
	case !known:
		return b, kafka.ErrBrokerIDNotRegistered
	case int64(b.Epoch) != req.BrokerEpoch:
		return b, kafka.ErrStaleBrokerEpoch
	}
	return b, kafka.ErrNone
}
