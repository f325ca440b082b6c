package metadata

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Delta lists what differs between two images.
type Delta struct {
	Topics      []TopicChange // In the order of their names, the deleted one first.
	Brokers     []kafka.BrokerID
	Configs     []Resource // Of brokers; a topic's shows in Topics.
	ProducerIDs bool
}

// TopicChange is a topic before and after; nil for "not there". A topic that was
// deleted and made again under its name is two changes.
type TopicChange struct{ Old, New *Topic }

// ReplayError says that a record does not fit the image that it was applied to.
// The record was written by a controller that had another image: the metadata
// log is not to be trusted, and the process must not go on with it.
type ReplayError struct {
	Record Record
	Reason string
}

// Error implements error.
func (e *ReplayError) Error() string {
	return fmt.Sprintf("metadata record %T does not fit: %s", e.Record, e.Reason)
}

// Apply returns the image after records, and what changed. The records belong to
// the new image from then on.
func (m *Image) Apply(records ...Record) (*Image, Delta, error) {
	e := &editor{Image: *m, from: m, topics: m.topics.edit(), touched: map[kafka.TopicID]bool{}}
	for _, r := range records {
		if reason := e.apply(r); reason != "" {
			return nil, Delta{}, &ReplayError{Record: r, Reason: reason}
		}
	}
	e.Image.topics = e.topics.finish()
	image := e.Image
	return &image, e.delta(&image), nil
}

// editor is an image in the making.
type editor struct {
	Image
	from    *Image
	topics  *topicEditor
	touched map[kafka.TopicID]bool
	brokers []kafka.BrokerID // Touched.
	configs []Resource       // Touched.
	ownMaps bool             // Image.configs is a copy already.
	ownHeld bool             // So is Image.held.
}

func (e *editor) apply(r Record) (reason string) {
	if need := r.kind().level(); need > max(e.level, 1) {
		return fmt.Sprintf("it needs level %d of the metadata, and the cluster uses level %d",
			need, e.level)
	}
	switch r := r.(type) {
	case *ClusterRecord:
		return e.cluster(r)
	case *LevelRaised:
		return e.levelRaised(r)
	case *BrokerChanged:
		return e.brokerChanged(r)
	case *BrokerRemoved:
		return e.brokerRemoved(r)
	case *BrokerRecord:
		return e.broker(r)
	case *TopicCreated:
		return e.topicCreated(r)
	case *TopicDeleted:
		return e.topicDeleted(r)
	case *PartitionsAdded:
		return e.partitionsAdded(r)
	case *PartitionsChanged:
		return e.partitionsChanged(r)
	case *LeadersRestarted:
		return e.leadersRestarted(r)
	case *ConfigChanged:
		return e.configChanged(r)
	case *ProducerIDs:
		if r.Next < e.nextProducerID {
			return fmt.Sprintf("producer ids up to %d were given out", e.nextProducerID)
		}
		e.nextProducerID = r.Next
		return ""
	}
	return "its type is unknown"
}

func (e *editor) cluster(r *ClusterRecord) string {
	switch {
	case e.clusterID != "":
		return "the cluster has an id already"
	case r.ClusterID == "":
		return "the cluster's id is empty"
	case r.Level < 1 || r.Level > CurrentLevel:
		return unknownLevel(r.Level)
	}
	e.clusterID, e.level, e.lastBrokerEpoch = r.ClusterID, r.Level, r.LastBrokerEpoch
	return ""
}

func unknownLevel(level int16) string {
	return fmt.Sprintf("the cluster uses level %d of the metadata, and this version knows 1 "+
		"to %d: run a newer version", level, CurrentLevel)
}

func (e *editor) levelRaised(r *LevelRaised) string {
	switch {
	case e.clusterID == "":
		return "there is no cluster"
	case r.Level > CurrentLevel:
		return unknownLevel(r.Level)
	case r.Level <= e.level:
		return fmt.Sprintf("the cluster uses level %d already", e.level)
	}
	e.level = r.Level
	return ""
}

func (e *editor) broker(r *BrokerRecord) string {
	b := r.Broker
	if len(b.Endpoints) == 0 || b.ID < 0 {
		return "a broker needs an id and an address"
	}
	b.Endpoint = b.Endpoints[0]
	i, known := e.findBroker(b.ID)
	all := slices.Clone(e.Image.brokers)
	if known {
		all[i] = b
	} else {
		all = slices.Insert(all, i, b)
	}
	e.Image.brokers = all
	e.lastBrokerEpoch = max(e.lastBrokerEpoch, b.Epoch)
	e.brokers = append(e.brokers, b.ID)
	return ""
}

func (e *editor) brokerChanged(r *BrokerChanged) string {
	i, known := e.findBroker(r.ID)
	if !known || e.Image.brokers[i].Epoch != r.Epoch {
		return fmt.Sprintf("broker %d is not registered with epoch %d", r.ID, r.Epoch)
	}
	e.Image.brokers = slices.Clone(e.Image.brokers)
	e.Image.brokers[i].Fenced, e.Image.brokers[i].ShuttingDown = r.Fenced, r.ShuttingDown
	e.brokers = append(e.brokers, r.ID)
	return ""
}

func (e *editor) brokerRemoved(r *BrokerRemoved) string {
	i, known := e.findBroker(r.ID)
	if !known {
		return fmt.Sprintf("there is no broker %d", r.ID)
	}
	e.Image.brokers = slices.Delete(slices.Clone(e.Image.brokers), i, i+1)
	e.brokers = append(e.brokers, r.ID)
	return ""
}

func (e *editor) topicCreated(r *TopicCreated) string {
	t := &Topic{Name: r.Name, ID: r.ID, Partitions: r.Partitions, Config: r.Config}
	switch {
	case e.topics.byName(t.Name) != nil:
		return "there is a topic of that name"
	case e.topics.byID(t.ID) != nil:
		return "there is a topic of that id"
	case CheckTopicName(t.Name) != nil:
		return "the name is no topic's"
	case t.ID.IsZero() || len(t.Partitions) == 0:
		return "a topic needs an id and partitions"
	}
	for i := range t.Partitions {
		if reason := t.Partitions[i].check(); reason != "" {
			return reason
		}
	}
	e.count(t, +1)
	e.put(t)
	return ""
}

// put stores a topic that differs from what the index has.
func (e *editor) put(t *Topic) {
	e.topics.put(t)
	e.touched[t.ID] = true
}

func (e *editor) count(t *Topic, sign int) {
	e.partitions += sign * len(t.Partitions)
	for i := range t.Partitions {
		e.countReplicas(t.Partitions[i].Replicas, sign)
	}
}

// countReplicas adds replicas to what the brokers hold, or takes them off.
func (e *editor) countReplicas(replicas []kafka.BrokerID, sign int) {
	if !e.ownHeld {
		e.ownHeld, e.Image.held = true, maps.Clone(e.Image.held)
		if e.Image.held == nil {
			e.Image.held = map[kafka.BrokerID]int{}
		}
	}
	e.replicas += sign * len(replicas)
	for _, id := range replicas {
		if e.Image.held[id] += sign; e.Image.held[id] == 0 {
			delete(e.Image.held, id)
		}
	}
}

func (e *editor) topicDeleted(r *TopicDeleted) string {
	t := e.topics.byID(r.ID)
	if t == nil {
		return "there is no topic of that id"
	}
	e.count(t, -1)
	e.topics.remove(t)
	e.touched[t.ID] = true
	return ""
}

// clone returns a copy of a topic of which the partitions may be changed, with
// room for more.
func (t *Topic) clone(more int) *Topic {
	c := *t
	c.Partitions = append(make([]Partition, 0, len(t.Partitions)+more), t.Partitions...)
	return &c
}

func (e *editor) partitionsAdded(r *PartitionsAdded) string {
	t := e.topics.byID(r.ID)
	switch {
	case t == nil:
		return "there is no topic of that id"
	case int(r.First) != len(t.Partitions):
		return fmt.Sprintf("the topic has %d partitions, and the next is said to be %d",
			len(t.Partitions), r.First)
	}
	t = t.clone(len(r.Partitions))
	for _, p := range r.Partitions {
		if reason := p.check(); reason != "" {
			return reason
		}
		if p.level() > 1 {
			return "a new partition does not move"
		}
		t.Partitions = append(t.Partitions, p)
		e.partitions++
		e.countReplicas(p.Replicas, +1)
	}
	e.put(t)
	return ""
}

func (e *editor) partitionsChanged(r *PartitionsChanged) string {
	t := e.topics.byID(r.ID)
	if t == nil {
		return "there is no topic of that id"
	}
	t = t.clone(0)
	for _, c := range r.Changes {
		old := t.Partition(c.Index)
		if old == nil {
			return fmt.Sprintf("there is no partition %d", c.Index)
		}
		if reason := c.Partition.check(); reason != "" {
			return reason
		}
		if c.Partition.PartitionEpoch <= old.PartitionEpoch ||
			c.Partition.LeaderEpoch < old.LeaderEpoch {
			return fmt.Sprintf("an epoch of partition %d goes back", c.Index)
		}
		if !slices.Equal(old.Replicas, c.Partition.Replicas) {
			e.countReplicas(old.Replicas, -1)
			e.countReplicas(c.Partition.Replicas, +1)
		}
		*old = c.Partition
	}
	e.put(t)
	return ""
}

func (e *editor) leadersRestarted(r *LeadersRestarted) string {
	var led []*Topic
	for t := range e.topics.all() {
		if slices.ContainsFunc(t.Partitions, func(p Partition) bool { return p.Leader == r.Broker }) {
			led = append(led, t)
		}
	}
	for _, t := range led {
		t = t.clone(0)
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader != r.Broker {
				continue
			}
			if p.LeaderEpoch == math.MaxInt32 || p.PartitionEpoch == math.MaxInt32 {
				return "an epoch would pass its limit"
			}
			p.LeaderEpoch++
			p.PartitionEpoch++
		}
		e.put(t)
	}
	return ""
}

func (e *editor) configChanged(r *ConfigChanged) string {
	switch r.Resource.Type {
	case TopicResource:
		t := e.topics.byName(r.Resource.Name)
		if t == nil {
			return "there is no topic " + r.Resource.Name
		}
		changed := *t
		changed.Config = changedMap(t.Config, r)
		e.put(&changed)
		return ""
	case BrokerResource:
		if !e.ownMaps {
			e.ownMaps, e.Image.configs = true, cloneMap(e.Image.configs)
		}
		values := changedMap(e.Image.configs[r.Resource], r)
		if values == nil {
			delete(e.Image.configs, r.Resource)
		} else {
			e.Image.configs[r.Resource] = values
		}
		e.configs = append(e.configs, r.Resource)
		return ""
	}
	return fmt.Sprintf("nothing of type %d has a configuration", r.Resource.Type)
}

// changedMap returns a changed copy, nil when it is empty.
func changedMap(old map[string]string, r *ConfigChanged) map[string]string {
	values := cloneMap(old)
	maps.Copy(values, r.Set)
	for _, name := range r.Remove {
		delete(values, name)
	}
	if len(values) == 0 {
		return nil
	}
	return values
}

// check returns which invariant a partition breaks, or "".
func (p *Partition) check() string {
	switch {
	case len(p.Replicas) == 0 || len(p.ISR) == 0:
		return "a partition needs replicas, and one of them in sync"
	case p.Leader != kafka.NoBroker && !slices.Contains(p.ISR, p.Leader):
		return "the leader of a partition is not in sync"
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0:
		return "an epoch is negative"
	case p.Lost && p.Leader != kafka.NoBroker:
		return "a partition that was lost has a leader"
	case len(p.Removing) >= len(p.Replicas):
		return "all replicas of a partition leave"
	}
	for i, id := range p.Replicas {
		if slices.Contains(p.Replicas[:i], id) {
			return fmt.Sprintf("broker %d holds a partition twice", id)
		}
	}
	for i, id := range p.ISR {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.ISR[:i], id) {
			return fmt.Sprintf("broker %d cannot be in sync", id)
		}
	}
	return cmp.Or(p.checkMove(), p.checkEligible())
}

func (p *Partition) checkEligible() string {
	out := slices.Concat(p.Eligible, p.LastEligible)
	for i, id := range out {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.ISR, id) || slices.Contains(out[:i], id) {
			return fmt.Sprintf("broker %d cannot be eligible", id)
		}
	}
	return ""
}

func (p *Partition) checkMove() string {
	for i, id := range p.Adding {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.Adding[:i], id) ||
			slices.Contains(p.Removing, id) {
			return fmt.Sprintf("broker %d cannot be on its way in", id)
		}
	}
	for i, id := range p.Removing {
		if !slices.Contains(p.Replicas, id) || slices.Contains(p.Removing[:i], id) {
			return fmt.Sprintf("broker %d cannot be on its way out", id)
		}
	}
	return ""
}
