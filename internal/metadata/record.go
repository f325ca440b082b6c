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
)

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
const CurrentLevel = 1

// BrokerRecord registers a broker, or registers it again.
type BrokerRecord struct{ Broker Broker }

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

func (*ClusterRecord) kind() kind     { return kindCluster }
func (*BrokerRecord) kind() kind      { return kindBroker }
func (*TopicCreated) kind() kind      { return kindTopicCreated }
func (*TopicDeleted) kind() kind      { return kindTopicDeleted }
func (*PartitionsAdded) kind() kind   { return kindPartitionsAdded }
func (*PartitionsChanged) kind() kind { return kindPartitionsChanged }
func (*LeadersRestarted) kind() kind  { return kindLeadersRestarted }
func (*ConfigChanged) kind() kind     { return kindConfigChanged }
func (*ProducerIDs) kind() kind       { return kindProducerIDs }
