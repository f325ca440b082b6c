package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Image is the cluster at one moment. The zero Image is a cluster of which
// nothing is known.
type Image struct {
	clusterID       string
	level           int16
	brokers         []Broker // By id.
	lastBrokerEpoch kafka.BrokerEpoch
	topics          topicIndex
	partitions      int                    // Of all topics together.
	replicas        int                    // Of all partitions together.
	held            map[kafka.BrokerID]int // Of these, on each broker; never changed, only replaced.
	configs         map[Resource]map[string]string
	nextProducerID  kafka.ProducerID
}

// Broker is a registered broker.
type Broker struct {
	ID          kafka.BrokerID
	Epoch       kafka.BrokerEpoch // Of this registration.
	Incarnation [16]byte          // Of the process that registered.
	Directories [][16]byte        // Ids of its data directories.
	Rack        string            // "" for none.
	Fenced      bool              // It may not lead, nor be in sync where others are.
	// ShuttingDown says that it is about to stop: it gets nothing more to lead.
	ShuttingDown bool
	// MaxLevel is the newest level of the metadata that it knows; 0 where it did not
	// say, and knows level 1.
	MaxLevel int16
	// Endpoint is the first of Endpoints: where clients find the broker.
	Endpoint
	Endpoints []Endpoint
}

// Available says that the broker may lead and may become in sync.
func (b *Broker) Available() bool { return !b.Fenced && !b.ShuttingDown }

// ClusterListener is the name of the endpoint where brokers find each other.
const ClusterListener = "CLUSTER"

// Listener returns the endpoint of that name.
func (b *Broker) Listener(name string) (Endpoint, bool) {
	i := slices.IndexFunc(b.Endpoints, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return Endpoint{}, false
	}
	return b.Endpoints[i], true
}

// Endpoint is an address that a broker advertises.
type Endpoint struct {
	Name string // Of the listener.
	Host string
	Port int32
}

// Topic is one incarnation of a topic.
type Topic struct {
	Name       string
	ID         kafka.TopicID
	Partitions []Partition
	Config     map[string]string // The values of its own; nil for none.
}

// Partition is the state of one partition.
//
// Invariant: ISR is a non-empty subset of Replicas; Leader is in ISR, or NoBroker.
// Adding and Removing are disjoint subsets of Replicas, and something remains
// without those that leave. Eligible and LastEligible are subsets of Replicas, disjoint
// from each other and from ISR.
type Partition struct {
	Replicas       []kafka.BrokerID // The first is the preferred leader.
	ISR            []kafka.BrokerID
	Leader         kafka.BrokerID
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch kafka.PartitionEpoch
	// Adding and Removing are set while the partition moves: replicas that are on
	// their way in, and those that leave when these are in sync.
	Adding   []kafka.BrokerID
	Removing []kafka.BrokerID
	// Lost says that the last in-sync replica came back without its log, so that it
	// does not have what it was in sync with: nobody may lead but by an unclean
	// election.
	//
	// Invariant: a lost partition has no leader.
	Lost bool
	// Eligible are replicas that left the ISR when it fell below min.insync.replicas.
	// The high watermark has stood still since, so that each of them has all that was
	// acknowledged: it may lead when nobody in the ISR is there (KIP-966's ELR).
	Eligible []kafka.BrokerID
	// LastEligible were in sync or eligible since then and are neither any more: whoever
	// has to elect one without a guarantee looks here first (KIP-966's last known ELR).
	LastEligible []kafka.BrokerID
}

// ElectedUnclean says whether the partition has a leader that, by its state before, was
// neither in sync nor eligible: it may lack what was acknowledged. Nobody else is in sync
// then. One that joined and was elected since, or with which a move has ended, is in the
// ISR beside others, or was being added.
func (p *Partition) ElectedUnclean(before *Partition) bool {
	if p.Leader == kafka.NoBroker || p.LeaderEpoch == before.LeaderEpoch {
		return false
	}
	moved := slices.Contains(before.Adding, p.Leader) && !slices.Contains(p.Adding, p.Leader)
	return before.Lost || !moved && len(p.ISR) == 1 &&
		!slices.Contains(before.ISR, p.Leader) && !slices.Contains(before.Eligible, p.Leader)
}

// Moving says whether the partition's replicas are being changed.
func (p *Partition) Moving() bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

// Target returns the replicas that the partition is to have.
func (p *Partition) Target() []kafka.BrokerID {
	if len(p.Removing) == 0 {
		return p.Replicas
	}
	return slices.DeleteFunc(slices.Clone(p.Replicas), func(id kafka.BrokerID) bool {
		return slices.Contains(p.Removing, id)
	})
}

// ResourceType says what a configuration belongs to; the numbers are the
// protocol's.
type ResourceType int8

// The types of resources.
const (
	TopicResource  ResourceType = 2
	BrokerResource ResourceType = 4
)

// Resource names what a configuration belongs to. The broker resource without a
// name stands for all brokers.
type Resource struct {
	Type ResourceType
	Name string
}

// ClusterID returns the id of the cluster, "" before there is one.
func (m *Image) ClusterID() string { return m.clusterID }

// Level returns the level of records that the cluster may use, 0 before there is a
// cluster.
func (m *Image) Level() int16 { return m.level }

// Brokers returns the registered brokers in the order of their ids. The slice
// must not be changed.
func (m *Image) Brokers() []Broker { return m.brokers }

// Broker returns a registered broker.
func (m *Image) Broker(id kafka.BrokerID) (Broker, bool) {
	i, ok := m.findBroker(id)
	if !ok {
		return Broker{}, false
	}
	return m.brokers[i], true
}

func (m *Image) findBroker(id kafka.BrokerID) (int, bool) {
	return slices.BinarySearchFunc(m.brokers, id, func(b Broker, id kafka.BrokerID) int {
		return cmp.Compare(b.ID, id)
	})
}

// LastBrokerEpoch returns the newest broker epoch that was ever given out.
func (m *Image) LastBrokerEpoch() kafka.BrokerEpoch { return m.lastBrokerEpoch }

// Controller returns the broker to which clients send what only the controller
// may do. Every broker passes such requests on, so as in Kafka any of them does;
// which one is active is known to the quorum alone.
func (m *Image) Controller() kafka.BrokerID {
	for i := range m.brokers {
		if !m.brokers[i].Fenced {
			return m.brokers[i].ID
		}
	}
	return kafka.NoBroker
}

// Topic returns the topic of that name, or nil.
func (m *Image) Topic(name string) *Topic { return m.topics.byName(name) }

// TopicByID returns the topic of that id, or nil.
func (m *Image) TopicByID(id kafka.TopicID) *Topic { return m.topics.byID(id) }

// Partition returns a partition of a topic, or nil if there is none of that number, or t is nil.
func (t *Topic) Partition(i int32) *Partition {
	if t == nil || i < 0 || int(i) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[i]
}

// Topics returns all topics in the order of their names, as a new slice.
func (m *Image) Topics() []*Topic {
	return slices.AppendSeq(make([]*Topic, 0, m.topics.len), m.topics.all())
}

// AllTopics walks all topics in the order of their names, without a copy.
func (m *Image) AllTopics() iter.Seq[*Topic] { return m.topics.all() }

// TopicCount returns how many topics there are.
func (m *Image) TopicCount() int { return m.topics.len }

// PartitionCount returns how many partitions all topics have together.
func (m *Image) PartitionCount() int { return m.partitions }

// ReplicaCount returns how many replicas all partitions have together.
func (m *Image) ReplicaCount() int { return m.replicas }

// ReplicasOn returns how many of them a broker is assigned.
func (m *Image) ReplicasOn(id kafka.BrokerID) int { return m.held[id] }

// Config returns the values that were set for a resource, nil for none. The map
// must not be changed.
func (m *Image) Config(r Resource) map[string]string {
	if r.Type == TopicResource {
		if t := m.Topic(r.Name); t != nil {
			return t.Config
		}
		return nil
	}
	return m.configs[r]
}

// NextProducerID returns the first producer id that was never given out.
func (m *Image) NextProducerID() kafka.ProducerID { return m.nextProducerID }
