package metadata

import "github.com/strandline/strandline/internal/kafka"

// Record is one change of the cluster's metadata.
type Record interface {
	kind() kind
	appendBody(dst []byte) []byte
}

// kind is a record's kind as it is written; a number is never used for another.
type kind byte

const (
	kindCluster           kind = 1
	kindBroker            kind = 2
	kindTopicCreated      kind = 3
	kindTopicDeleted      kind = 4
	kindPartitionsAdded   kind = 5
	kindPartitionsChanged kind = 6
	kindLeadersRestarted  kind = 7
	kindConfigChanged     kind = 8
	kindProducerIDs       kind = 9

	// Of level 2.

	kindLevelRaised      kind = 10
	kindBrokerJoined     kind = 11 // A BrokerRecord with all its fields.
	kindBrokerChanged    kind = 12
	kindBrokerRemoved    kind = 13
	kindTopicMoving      kind = 14 // A TopicCreated with all fields of its partitions.
	kindPartitionsMoving kind = 15 // The same of PartitionsChanged.
	firstKindOfLevel2         = kindLevelRaised

	// Of level 3.

	kindTopicEligible      kind = 18 // As kindTopicMoving, with eligible leader replicas.
	kindPartitionsEligible kind = 19 // The same of PartitionsChanged.
	firstKindOfLevel3           = kindTopicEligible
)

// level is the level from which on a cluster may have records of a kind.
func (k kind) level() int16 {
	switch {
	case k >= firstKindOfLevel3:
		return 3
	case k >= firstKindOfLevel2 && k != kindLevelRaised:
		return 2
	}
	return 1
}

// ClusterRecord names the cluster. It comes once, before all others.
type ClusterRecord struct {
	ClusterID string
	// Level is the newest set of records and fields that the cluster may use: a
	// broker that does not know it must not go on.
	Level int16
	// LastBrokerEpoch is the newest broker epoch that was given out.
	LastBrokerEpoch kafka.BrokerEpoch
}

// CurrentLevel is the level that this code writes and the newest it reads.
//
//	1  one broker
//	2  several: brokers are fenced and shut down, partitions move
//	3  eligible leader replicas (KIP-966)
const CurrentLevel = 3

// LevelRaised lets the cluster use a newer level: all its brokers know it.
type LevelRaised struct{ Level int16 }

// BrokerRecord registers a broker, or registers it again.
type BrokerRecord struct{ Broker Broker }

// BrokerChanged changes what a registered broker may do. Where Epoch is not that
// of the registration, it does not fit.
type BrokerChanged struct {
	ID           kafka.BrokerID
	Epoch        kafka.BrokerEpoch
	Fenced       bool
	ShuttingDown bool
}

// BrokerRemoved removes a registration. Its id may register again.
type BrokerRemoved struct{ ID kafka.BrokerID }

// TopicCreated creates a topic with all its partitions.
type TopicCreated struct {
	Name       string
	ID         kafka.TopicID
	Partitions []Partition
	Config     map[string]string
}

// TopicDeleted deletes a topic and its configuration.
type TopicDeleted struct{ ID kafka.TopicID }

// PartitionsAdded adds partitions after those that a topic has.
type PartitionsAdded struct {
	ID         kafka.TopicID
	First      int32 // The number of the first new one.
	Partitions []Partition
}

// PartitionsChanged gives partitions of a topic a new state.
type PartitionsChanged struct {
	ID      kafka.TopicID
	Changes []PartitionChange
}

// PartitionChange is the new state of one partition.
type PartitionChange struct {
	Index     int32
	Partition Partition
}

// LeadersRestarted starts a new leader epoch for every partition that a broker
// leads: the broker came back after a crash, so that its logs may end earlier than
// what it has told. One small record does it for all partitions.
type LeadersRestarted struct{ Broker kafka.BrokerID }

// ConfigChanged sets and removes values of one resource.
type ConfigChanged struct {
	Resource Resource
	Set      map[string]string
	Remove   []string
}

// ProducerIDs moves the first producer id that was never given out.
type ProducerIDs struct{ Next kafka.ProducerID }

func (*ClusterRecord) kind() kind    { return kindCluster }
func (*LevelRaised) kind() kind      { return kindLevelRaised }
func (*BrokerChanged) kind() kind    { return kindBrokerChanged }
func (*BrokerRemoved) kind() kind    { return kindBrokerRemoved }
func (*TopicDeleted) kind() kind     { return kindTopicDeleted }
func (*PartitionsAdded) kind() kind  { return kindPartitionsAdded }
func (*LeadersRestarted) kind() kind { return kindLeadersRestarted }
func (*ConfigChanged) kind() kind    { return kindConfigChanged }
func (*ProducerIDs) kind() kind      { return kindProducerIDs }

// The kinds of the others say whether they need what levels 2 and 3 have added, so
// that what needs nothing of it is written as it always was.

func (r *BrokerRecord) kind() kind {
	if r.Broker.MaxLevel != 0 || r.Broker.ShuttingDown {
		return kindBrokerJoined
	}
	return kindBroker
}

func (r *TopicCreated) kind() kind {
	level := int16(1)
	for i := range r.Partitions {
		level = max(level, r.Partitions[i].level())
	}
	return [...]kind{1: kindTopicCreated, 2: kindTopicMoving, 3: kindTopicEligible}[level]
}

func (r *PartitionsChanged) kind() kind {
	level := int16(1)
	for i := range r.Changes {
		level = max(level, r.Changes[i].Partition.level())
	}
	return [...]kind{1: kindPartitionsChanged, 2: kindPartitionsMoving, 3: kindPartitionsEligible}[level]
}

// level is the level that has added what a partition has.
func (p *Partition) level() int16 {
	switch {
	case len(p.Eligible) > 0 || len(p.LastEligible) > 0:
		return 3
	case len(p.Adding) > 0 || len(p.Removing) > 0 || p.Lost:
		return 2
	}
	return 1
}
