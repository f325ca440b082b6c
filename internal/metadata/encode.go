package metadata

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// entryVersion is the first byte of encoded records.
const entryVersion = 1

// AppendRecords appends the encoding of records to dst: a version byte, then each
// record with its length in front, so that a reader can tell a record of a kind it
// does not know from garbage. Equal records have equal bytes.
func AppendRecords(dst []byte, records ...Record) []byte {
	dst = append(dst, entryVersion)
	return appendFrames(dst, records)
}

func appendFrames(dst []byte, records []Record) []byte {
	var body []byte
	for _, r := range records {
		body = r.appendBody(append(body[:0], byte(r.kind())))
		dst = binary.AppendUvarint(dst, uint64(len(body)))
		dst = append(dst, body...)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendIDs(dst []byte, ids []kafka.BrokerID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = binary.AppendVarint(dst, int64(id))
	}
	return dst
}

// appendStrings writes a map in the order of its keys.
func appendStrings(dst []byte, m map[string]string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = appendString(appendString(dst, k), m[k])
	}
	return dst
}

func appendPartition(dst []byte, p *Partition) []byte {
	dst = appendIDs(dst, p.Replicas)
	dst = appendIDs(dst, p.ISR)
	dst = binary.AppendVarint(dst, int64(p.Leader))
	dst = binary.AppendVarint(dst, int64(p.LeaderEpoch))
	return binary.AppendVarint(dst, int64(p.PartitionEpoch))
}

// appendMoving writes a partition with what level 2 has added.
func appendMoving(dst []byte, p *Partition) []byte {
	dst = appendPartition(dst, p)
	dst = appendIDs(dst, p.Adding)
	dst = appendIDs(dst, p.Removing)
	return appendBool(dst, p.Lost)
}

// appendEligible writes a partition with what level 3 has added too.
func appendEligible(dst []byte, p *Partition) []byte {
	dst = appendMoving(dst, p)
	dst = appendIDs(dst, p.Eligible)
	return appendIDs(dst, p.LastEligible)
}

// appender returns what writes the partitions of a record of a kind.
func appender(k kind) func([]byte, *Partition) []byte {
	switch k.level() {
	case 1:
		return appendPartition
	case 2:
		return appendMoving
	}
	return appendEligible
}

func appendPartitions(dst []byte, partitions []Partition) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(partitions)))
	for i := range partitions {
		dst = appendPartition(dst, &partitions[i])
	}
	return dst
}

func (r *ClusterRecord) appendBody(dst []byte) []byte {
	dst = appendString(dst, r.ClusterID)
	dst = binary.AppendVarint(dst, int64(r.Level))
	return binary.AppendVarint(dst, int64(r.LastBrokerEpoch))
}

func (r *BrokerRecord) appendBody(dst []byte) []byte {
	b := &r.Broker
	dst = binary.AppendVarint(dst, int64(b.ID))
	dst = binary.AppendVarint(dst, int64(b.Epoch))
	dst = append(dst, b.Incarnation[:]...)
	dst = appendString(dst, b.Rack)
	dst = appendBool(dst, b.Fenced)
	dst = binary.AppendUvarint(dst, uint64(len(b.Directories)))
	for i := range b.Directories {
		dst = append(dst, b.Directories[i][:]...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Endpoints)))
	for _, e := range b.Endpoints {
		dst = appendString(appendString(dst, e.Name), e.Host)
		dst = binary.AppendVarint(dst, int64(e.Port))
	}
	if r.kind() == kindBrokerJoined {
		dst = appendBool(dst, b.ShuttingDown)
		dst = binary.AppendVarint(dst, int64(b.MaxLevel))
	}
	return dst
}

func (r *LevelRaised) appendBody(dst []byte) []byte {
	return binary.AppendVarint(dst, int64(r.Level))
}

func (r *BrokerChanged) appendBody(dst []byte) []byte {
	dst = binary.AppendVarint(dst, int64(r.ID))
	dst = binary.AppendVarint(dst, int64(r.Epoch))
	return appendBool(appendBool(dst, r.Fenced), r.ShuttingDown)
}

func (r *BrokerRemoved) appendBody(dst []byte) []byte {
	return binary.AppendVarint(dst, int64(r.ID))
}

func (r *TopicCreated) appendBody(dst []byte) []byte {
	dst = append(dst, r.ID[:]...)
	dst = appendString(dst, r.Name)
	dst = appendStrings(dst, r.Config)
	appendOne := appender(r.kind())
	dst = binary.AppendUvarint(dst, uint64(len(r.Partitions)))
	for i := range r.Partitions {
		dst = appendOne(dst, &r.Partitions[i])
	}
	return dst
}

func (r *TopicDeleted) appendBody(dst []byte) []byte { return append(dst, r.ID[:]...) }

func (r *PartitionsAdded) appendBody(dst []byte) []byte {
	dst = append(dst, r.ID[:]...)
	dst = binary.AppendVarint(dst, int64(r.First))
	return appendPartitions(dst, r.Partitions)
}

func (r *PartitionsChanged) appendBody(dst []byte) []byte {
	dst = append(dst, r.ID[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(r.Changes)))
	appendOne := appender(r.kind())
	for i := range r.Changes {
		dst = binary.AppendVarint(dst, int64(r.Changes[i].Index))
		dst = appendOne(dst, &r.Changes[i].Partition)
	}
	return dst
}

func (r *LeadersRestarted) appendBody(dst []byte) []byte {
	return binary.AppendVarint(dst, int64(r.Broker))
}

func (r *ConfigChanged) appendBody(dst []byte) []byte {
	dst = append(dst, byte(r.Resource.Type))
	dst = appendString(dst, r.Resource.Name)
	dst = appendStrings(dst, r.Set)
	dst = binary.AppendUvarint(dst, uint64(len(r.Remove)))
	for _, name := range r.Remove {
		dst = appendString(dst, name)
	}
	return dst
}

func (r *ProducerIDs) appendBody(dst []byte) []byte {
	return binary.AppendVarint(dst, int64(r.Next))
}
