package broker

import (
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
)

// storageEvents are the storage's events as log lines. Damage and refusals name the
// topic, which storage does not know.
type storageEvents struct {
	commitlog.LogEvents
	b *Broker
}

// Corrupt implements commitlog.Events.
func (e storageEvents) Corrupt(id kafka.TopicIDPartition, err *commitlog.CorruptionError) {
	e.named(id).Corrupt(id, err)
}

// Mended implements commitlog.Events.
func (e storageEvents) Mended(id kafka.TopicIDPartition, m commitlog.MendedHole) {
	e.named(id).Mended(id, m)
}

// DiskFull implements commitlog.Events.
func (e storageEvents) DiskFull(id kafka.TopicIDPartition, err error) { e.named(id).DiskFull(id, err) }

// ReadFailed implements commitlog.Events.
func (e storageEvents) ReadFailed(id kafka.TopicIDPartition, err error) {
	e.named(id).ReadFailed(id, err)
}

// Failed implements commitlog.Events.
func (e storageEvents) Failed(id kafka.TopicIDPartition, err error) { e.named(id).Failed(id, err) }

// named returns the log with the name of a partition's topic.
func (e storageEvents) named(id kafka.TopicIDPartition) commitlog.LogEvents {
	name := e.b.topicName(id)
	if name == "" {
		return e.LogEvents // While the broker starts, or of a deleted topic.
	}
	return commitlog.LogEvents{Logger: e.Logger.With("topic", name)}
}

// topicName returns the name of a partition's topic, or "" if it is unknown.
func (b *Broker) topicName(id kafka.TopicIDPartition) string {
	if b.partitions != nil {
		if p := b.partitions.GetByID(id.ID, id.Partition); p != nil {
			return p.Topic()
		}
	}
	return ""
}

// Corrupt implements httpapi.Broker.
func (b *Broker) Corrupt() []httpapi.Corrupt {
	found := b.disk.Corruptions()
	all := make([]httpapi.Corrupt, len(found))
	for i, c := range found {
		name := b.topicName(c.ID)
		if name == "" {
			name = c.ID.ID.String()
		}
		all[i] = httpapi.Corrupt{
			Topic: name, Partition: c.ID.Partition, File: c.Found.Path, Position: c.Found.Position,
			Reason: c.Found.Reason, Since: c.Since,
		}
	}
	return all
}

// Health implements httpapi.Broker.
func (b *Broker) Health() httpapi.Health { return httpapi.HealthOf(b.control.Image(), b.settings()) }
