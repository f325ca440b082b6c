package broker

import (
	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/topics"
)

// openRequests makes what answers requests: the two protocols side by side, and
// below them what they share.
func (b *Broker) openRequests() {
	self := kafka.BrokerID(b.config.NodeID)
	b.reach = newDoorbell(b.now, b.log)
	b.topics = &topics.Directory{
		Control: b.control, Broker: b.control.BrokerConfig, Partitions: b.partitions,
		EnsureOffsets: b.ensureOffsetsTopic, Logger: b.log,
	}
	b.keys = keyring.New(keyring.Options{
		MaxKeys: func() int { return int(b.settings().IdempotencyMaxKeysPerBroker) },
		Exists:  func(id kafka.TopicID) bool { return b.control.Image().TopicByID(id) != nil },
	})
	b.coordinator = &groups.Coordinator{
		Shards: b.groups, EnsureTopic: b.ensureOffsetsTopic, Image: b.control.Image,
	}
	b.api = &api.Services{
		NodeID: self, LogDir: b.config.DataDir, Partitions: b.partitions, Control: b.control,
		Groups: b.coordinator, Topics: b.topics, Disk: b.config.FS, Broker: b.control.BrokerConfig, Now: b.now, Logger: b.log, Reach: b.reach,
	}
	b.api.Leased = b.leased
	b.api.Transactions, b.api.Markers = b.transactions, b.local()
	b.api.Quorum, b.api.OutOfTouch, b.api.Hangs = b.quorum, b.outOfTouch, b.control.Hangs
	if b.cluster != nil {
		b.api.Peers = b.cluster.requests
	}
	members := session.Options{
		Groups: b.coordinator, EnsureOffsets: b.ensureOffsetsTopic, Topics: b.topics, Now: b.now, Logger: b.log,
		MaxSessions: int(b.settings().HTTPMaxSessions), Self: self,
	}
	services := httpapi.Services{
		NodeID: self, Topics: b.topics, Keys: b.keys, Groups: b.coordinator, Transactions: b.transactions, Control: b.control,
		Broker: b.control.BrokerConfig, Now: b.now, Logger: b.log,
	}
	if b.cluster != nil {
		members.Ask, services.Forward = httpapi.AskSessions(b.cluster.relay), b.cluster.relay
	}
	b.sessions = session.New(members)
	services.Sessions = b.sessions
	b.httpAPI = httpapi.New(b, services)
}
