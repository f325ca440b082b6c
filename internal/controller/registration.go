package controller

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// LevelFeature is the feature by which a registration says which levels of the
// metadata the broker knows.
const LevelFeature = "strandline.metadata"

// RegisterBroker decides about a broker that has started. It gets a new broker
// epoch, and is fenced until a heartbeat says that it knows the metadata up to
// here; only the first broker of a cluster, which is the controller too, knows
// it by definition.
//
// What its last process led or was in sync with goes to others, see comeBack.
// A broker that is alone has no others, and what it leads gets new leader epochs
// unless it says that it went down cleanly from the last registration
// (PreviousBrokerEpoch, KIP-966): after a crash its logs may end earlier than
// readers have seen, and a new epoch is what tells them. What it gave up when it went
// down it leads again at once: no heartbeat asks for that where nobody was fenced.
func (s *State) RegisterBroker(
	req *kmsg.BrokerRegistrationRequest,
) (*kmsg.BrokerRegistrationResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	old, known := s.image.Broker(kafka.BrokerID(req.BrokerID))
	if known && old.Incarnation == req.IncarnationID && old.Incarnation != ([16]byte{}) {
		resp.BrokerEpoch = int64(old.Epoch) // It did not hear the first answer.
		return resp, nil
	}
	if code := s.checkRegistration(req); code != kafka.ErrNone {
		resp.ErrorCode = int16(code)
		return resp, nil
	}
	b := s.registered(req)
	resp.BrokerEpoch = int64(b.Epoch)
	records := s.raiseLevel(&b)
	records = append(records, &metadata.BrokerRecord{Broker: b})
	clean := known && req.PreviousBrokerEpoch == int64(old.Epoch)
	switch {
	case !known:
		return resp, records
	case b.Fenced:
		return resp, append(records, s.comeBack(&old, &b, clean)...)
	case !clean:
		records = append(records, &metadata.LeadersRestarted{Broker: b.ID})
	}
	return resp, append(records, s.admit(b)...)
}

// registered is the broker as it registers.
func (s *State) registered(req *kmsg.BrokerRegistrationRequest) metadata.Broker {
	b := metadata.Broker{
		ID: kafka.BrokerID(req.BrokerID), Epoch: s.image.LastBrokerEpoch() + 1,
		Incarnation: req.IncarnationID, Directories: slices.Clone(req.LogDirs),
		MaxLevel: maxLevel(req),
	}
	if req.Rack != nil {
		b.Rack = *req.Rack
	}
	for _, l := range req.Listeners {
		e := metadata.Endpoint{Name: l.Name, Host: l.Host, Port: int32(l.Port)}
		b.Endpoints = append(b.Endpoints, e)
	}
	others := slices.ContainsFunc(s.image.Brokers(), func(o metadata.Broker) bool {
		return o.ID != b.ID
	})
	b.Fenced = others || b.ID != s.opt.Self
	return b
}

// checkRegistration says what is wrong with a registration. The answer has no room
// for words.
func (s *State) checkRegistration(req *kmsg.BrokerRegistrationRequest) kafka.Code {
	old, known := s.image.Broker(kafka.BrokerID(req.BrokerID))
	level := maxLevel(req)
	switch {
	case req.ClusterID != s.image.ClusterID():
		return kafka.ErrInconsistentClusterID
	case req.BrokerID < 0 || len(req.Listeners) == 0:
		return kafka.ErrInvalidRegistration
	case level > 0 && level < s.image.Level():
		return kafka.ErrUnsupportedVersion
	case known && s.rank(&old) == present && s.opt.Seen != nil &&
		(moved(&old, req.LogDirs) || elsewhere(&old, req.Listeners)):
		// A process on the same directory and address replaces the last, since only one
		// can hold them; on another, even if it has the same id because it is a copy, it
		// may well run beside it.
		return kafka.ErrDuplicateBrokerRegistration
	}
	return kafka.ErrNone
}

// moved says whether a broker comes back with another data directory than it had.
func moved(old *metadata.Broker, directories [][16]byte) bool {
	if len(old.Directories) == 0 || len(directories) == 0 {
		return false
	}
	return !slices.ContainsFunc(directories, func(id [16]byte) bool {
		return slices.Contains(old.Directories, id)
	})
}

// elsewhere says whether a broker comes back where other brokers did not find it before.
func elsewhere(old *metadata.Broker, listeners []kmsg.BrokerRegistrationRequestListener) bool {
	was, ok := old.Listener(metadata.ClusterListener)
	return ok && slices.ContainsFunc(listeners, func(l kmsg.BrokerRegistrationRequestListener) bool {
		return l.Name == was.Name && (l.Host != was.Host || int32(l.Port) != was.Port)
	})
}

func maxLevel(req *kmsg.BrokerRegistrationRequest) int16 {
	for _, f := range req.Features {
		if f.Name == LevelFeature {
			return f.MaxSupportedVersion
		}
	}
	return 0
}

// raiseLevel raises the level of the cluster when, with a broker that registers,
// all of its brokers know a newer one.
func (s *State) raiseLevel(b *metadata.Broker) []metadata.Record {
	level := min(b.MaxLevel, metadata.CurrentLevel)
	for _, o := range s.image.Brokers() {
		if o.ID != b.ID {
			level = min(level, o.MaxLevel)
		}
	}
	if level > s.image.Level() {
		return []metadata.Record{&metadata.LevelRaised{Level: level}}
	}
	if s.image.Level() < 2 {
		b.MaxLevel = 0 // The level has no room for it.
	}
	return nil
}

// comeBack decides about the partitions of a broker whose new process registers.
//
// Where somebody else is in sync, the broker leaves the ISR, and another leads: it
// is back in as soon as it has caught up. Where nobody else is, it stays, and
// leads again once it is not fenced. Two kinds of replicas may have lost what they
// had acknowledged, and leave the ISR for anybody else in it, even if that one is
// down at the moment (KIP-966): those of a topic that does not sync what it
// acknowledges, after a crash; and all of a broker that comes with an empty
// directory. If nobody else is in sync or eligible, a partition of the latter is lost.
//
// A controller that has just begun to lead does not know whether others that were
// in sync are there: after a power failure of all, they are not. Until it has heard
// of one, the broker stays in the ISR beside them. Otherwise the last to come back
// would be the only one in sync, and the partition would hang on it.
func (s *State) comeBack(old, b *metadata.Broker, clean bool) []metadata.Record {
	ranks := s.ranks(*b)
	empty := moved(old, b.Directories)
	records, _ := s.revise(s.image.PartitionCount(), func(t *metadata.Topic, p *metadata.Partition) kafka.BrokerID {
		forgot := kafka.NoBroker
		if empty || !clean && !s.syncsAcknowledged(t) {
			forgot = b.ID
		}
		if !slices.Contains(p.ISR, b.ID) {
			return forgot
		}
		others := without(p.ISR, b.ID)
		switch {
		case forgot == b.ID && forget(p, b.ID):
		case empty:
			p.Lost = true
		case !slices.ContainsFunc(others, func(id kafka.BrokerID) bool { return ranks[id] == present }):
			if p.Leader == b.ID {
				p.Leader = kafka.NoBroker
			}
			return forgot
		}
		if p.Leader == b.ID {
			p.Leader = kafka.NoBroker
		}
		ranks.settle(p, s.topicConfig(t).UncleanLeaderElectionEnable)
		return forgot
	})
	return records
}

// syncsAcknowledged says whether a topic's replicas sync what they acknowledge
// before they do.
func (s *State) syncsAcknowledged(t *metadata.Topic) bool {
	return s.topicConfig(t).FlushMessages == 1
}

// without returns a list without one of its brokers.
func without(ids []kafka.BrokerID, id kafka.BrokerID) []kafka.BrokerID {
	return slices.DeleteFunc(slices.Clone(ids), func(other kafka.BrokerID) bool { return other == id })
}

// UnregisterBroker decides about a broker that is to be forgotten. It may not be
// running, and nothing may be left on it: what was assigned to it would wait for
// it for ever.
func (s *State) UnregisterBroker(
	req *kmsg.UnregisterBrokerRequest,
) (*kmsg.UnregisterBrokerResponse, []metadata.Record) {
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	id := kafka.BrokerID(req.BrokerID)
	err := s.checkUnregistration(id)
	resp.ErrorCode, resp.ErrorMessage = outcome(err)
	if err != nil {
		return resp, nil
	}
	records := []metadata.Record{&metadata.BrokerRemoved{ID: id}}
	// Another broker may have its number one day.
	r := brokerResource(id)
	if own := s.image.Config(r); len(own) > 0 {
		records = append(records, &metadata.ConfigChanged{Resource: r, Remove: slices.Sorted(maps.Keys(own))})
	}
	return resp, records
}

func (s *State) checkUnregistration(id kafka.BrokerID) *kafka.Error {
	b, known := s.image.Broker(id)
	switch {
	case !known:
		return refuse(kafka.ErrBrokerIDNotRegistered, "there is no broker %d", id)
	case !b.Fenced:
		return refuse(kafka.ErrInvalidRequest, "broker %d is running: stop it before you "+
			"unregister it, or it would register again", id)
	}
	held, example := 0, ""
	for t := range s.image.AllTopics() {
		for i := range t.Partitions {
			if slices.Contains(t.Partitions[i].Replicas, id) {
				held++
				example = t.Name
			}
		}
	}
	if held > 0 {
		return refuse(kafka.ErrInvalidRequest, "broker %d is assigned %d partition replicas, of "+
			"topic %s among others: reassign them to other brokers first", id, held, example)
	}
	return nil
}
