package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Heartbeat decides what follows from a broker's heartbeat. Most change nothing,
// see IsRoutine. A broker that wants to serve is admitted; one that wants not to
// is fenced, but for what nobody else can lead, see stepBack. One that wants to shut down gets nothing more to lead, and what it
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
		b, records = s.stepBack(b)
	case !req.WantFence && !b.Available():
		b.Fenced, b.ShuttingDown = false, false
		records = append([]metadata.Record{changed(&b)}, s.admit(b)...)
	}
	resp.IsCaughtUp, resp.IsFenced = !req.WantFence, b.Fenced
	return resp, records
}

// stepBack returns what a broker that can't serve well is now: fenced, or, as long as
// there are partitions that nobody else can lead, one that leads those alone. Their
// readers may still be served.
func (s *State) stepBack(b metadata.Broker) (metadata.Broker, []metadata.Record) {
	first := !b.ShuttingDown
	b.ShuttingDown = true
	if !s.isNeeded(b) {
		b.Fenced = true
		return b, s.FenceBrokers([]kafka.BrokerID{b.ID})
	}
	records, _ := s.withdraw(b)
	if first {
		records = append(records, changed(&b))
	}
	return b, records
}

// isNeeded reports whether a broker leads what nobody else can lead.
func (s *State) isNeeded(b metadata.Broker) bool {
	ranks := s.ranks(b)
	for t := range s.image.AllTopics() {
		for i := range t.Partitions {
			p := t.Partitions[i]
			if p.Leader != b.ID {
				continue
			}
			if ranks.settle(&p, false); p.Leader == b.ID {
				return true
			}
		}
	}
	return false
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
