package metadata

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// FormatError says that bytes are no records or no snapshot of this format, or of
// a version that this code does not know.
type FormatError struct {
	Position int // In the bytes.
	Reason   string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("metadata at byte %d: %s", e.Position, e.Reason)
}

// DecodeRecords is the inverse of AppendRecords. The records do not alias data.
func DecodeRecords(data []byte) ([]Record, error) {
	if len(data) == 0 || data[0] != entryVersion {
		return nil, &FormatError{Reason: "these are not records of version 1: a newer version of " +
			"Strandline wrote them, or they are damaged"}
	}
	return decodeFrames(data[1:], 1)
}

// decodeFrames decodes records that lie at a position of the whole.
func decodeFrames(data []byte, position int) ([]Record, error) {
	var records []Record
	d := &decoder{data: data, position: position}
	for len(d.data) > 0 && d.err == nil {
		size := d.count(1)
		body := decoder{data: d.data[:size], position: d.position}
		d.skip(size)
		if d.err != nil {
			break
		}
		r, err := body.record()
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if d.err != nil {
		return nil, d.err
	}
	return records, nil
}

// decoder reads the fields of a record. After a failure it returns zeros, and err
// says what was wrong first.
type decoder struct {
	data     []byte
	position int
	err      error
}

func (d *decoder) fail(reason string) {
	if d.err == nil {
		d.err = &FormatError{Position: d.position, Reason: reason}
	}
	d.data = nil
}

func (d *decoder) skip(n int) {
	d.data = d.data[n:]
	d.position += n
}

func (d *decoder) record() (Record, error) {
	var r Record
	k := kind(d.byte())
	switch k {
	case kindCluster:
		r = &ClusterRecord{d.string(), d.int16(), kafka.BrokerEpoch(d.varint())}
	case kindBroker:
		r = &BrokerRecord{d.broker()}
	case kindTopicCreated:
		r = d.topic(minPartition, d.partition)
	case kindTopicDeleted:
		r = &TopicDeleted{d.id()}
	case kindPartitionsAdded:
		r = &PartitionsAdded{d.id(), d.int32(), d.partitions(minPartition, d.partition)}
	case kindPartitionsChanged:
		r = &PartitionsChanged{d.id(), d.changes(minPartition, d.partition)}
	case kindLeadersRestarted:
		r = &LeadersRestarted{kafka.BrokerID(d.int32())}
	case kindConfigChanged:
		r = &ConfigChanged{Resource{ResourceType(d.byte()), d.string()}, d.strings(), d.names()}
	case kindProducerIDs:
		r = &ProducerIDs{kafka.ProducerID(d.varint())}
	case kindLevelRaised:
		r = &LevelRaised{d.int16()}
	case kindBrokerJoined:
		r = &BrokerRecord{d.brokerJoined()}
	case kindBrokerChanged:
		r = &BrokerChanged{
			kafka.BrokerID(d.int32()), kafka.BrokerEpoch(d.varint()), d.bool(), d.bool(),
		}
	case kindBrokerRemoved:
		r = &BrokerRemoved{kafka.BrokerID(d.int32())}
	case kindTopicMoving:
		r = d.topic(minMoving, d.moving)
	case kindPartitionsMoving:
		r = &PartitionsChanged{d.id(), d.changes(minMoving, d.moving)}
	case kindTopicEligible:
		r = d.topic(minEligible, d.eligible)
	case kindPartitionsEligible:
		r = &PartitionsChanged{d.id(), d.changes(minEligible, d.eligible)}
	default:
		d.fail(fmt.Sprintf("there is no record kind %d: a newer version of Strandline wrote it", k))
	}
	if d.err == nil && r.kind() != k {
		d.fail(fmt.Sprintf("a record of kind %d needs nothing that kind %d does not have", k, r.kind()))
	}
	if d.err == nil && len(d.data) > 0 {
		d.fail(fmt.Sprintf("%d bytes are left over at the end of the record", len(d.data)))
	}
	return r, d.err
}

func (d *decoder) byte() byte {
	if len(d.data) == 0 {
		d.fail("the record ends too early")
		return 0
	}
	b := d.data[0]
	d.skip(1)
	return b
}

func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.fail("a truth value is neither 0 nor 1")
	}
	return b == 1
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 || n > 1 && d.data[n-1] == 0 {
		d.fail("a number is not written as it should be")
		return 0
	}
	d.skip(n)
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("a number does not fit 32 bits")
	}
	return int32(v)
}

func (d *decoder) int16() int16 {
	v := d.varint()
	if v < math.MinInt16 || v > math.MaxInt16 {
		d.fail("a number does not fit 16 bits")
	}
	return int16(v)
}

// count reads how many elements of at least minSize bytes follow; so what is
// allocated for them is bounded by the bytes that are there.
func (d *decoder) count(minSize int) int {
	n := d.uvarint()
	if n > uint64(len(d.data)/minSize) {
		d.fail("a count or length is larger than what follows")
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count(1)
	s := string(d.data[:n])
	d.skip(n)
	return s
}

func (d *decoder) uuid() (id [16]byte) {
	if len(d.data) < len(id) {
		d.fail("the record ends too early")
		return id
	}
	copy(id[:], d.data)
	d.skip(len(id))
	return id
}

func (d *decoder) id() kafka.TopicID { return d.uuid() }

func (d *decoder) names() []string {
	var out []string
	for range d.count(1) {
		out = append(out, d.string())
	}
	return out
}

func (d *decoder) strings() map[string]string {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	out := make(map[string]string, n)
	last := ""
	for i := range n {
		k := d.string()
		if i > 0 && k <= last {
			d.fail("keys are not in order")
		}
		if d.err != nil {
			return nil
		}
		out[k], last = d.string(), k
	}
	return out
}

func (d *decoder) brokers() []kafka.BrokerID {
	out := make([]kafka.BrokerID, d.count(1))
	for i := range out {
		out[i] = kafka.BrokerID(d.int32())
	}
	return out
}

// minPartition is the size of a partition with empty lists.
const minPartition = 5

func (d *decoder) partition() Partition {
	p := Partition{Replicas: d.brokers(), ISR: d.brokers()}
	p.Leader = kafka.BrokerID(d.int32())
	p.LeaderEpoch = kafka.LeaderEpoch(d.int32())
	p.PartitionEpoch = kafka.PartitionEpoch(d.int32())
	if slices.Equal(p.Replicas, p.ISR) {
		p.ISR = p.Replicas // Most of the time, and then one slice does.
	}
	return p
}

// maybeBrokers reads a list that is nil when it is empty.
func (d *decoder) maybeBrokers() []kafka.BrokerID {
	if ids := d.brokers(); len(ids) > 0 {
		return ids
	}
	return nil
}

// minMoving is the size of a partition with empty lists and what level 2 has
// added.
const minMoving = minPartition + 3

func (d *decoder) moving() Partition {
	p := d.partition()
	p.Adding, p.Removing, p.Lost = d.maybeBrokers(), d.maybeBrokers(), d.bool()
	return p
}

// minEligible is the size of a partition with empty lists and what levels 2 and 3
// have added.
const minEligible = minMoving + 2

func (d *decoder) eligible() Partition {
	p := d.moving()
	p.Eligible, p.LastEligible = d.maybeBrokers(), d.maybeBrokers()
	return p
}

func (d *decoder) brokerJoined() Broker {
	b := d.broker()
	b.ShuttingDown, b.MaxLevel = d.bool(), d.int16()
	return b
}

// partitions reads partitions that one reads, each of at least minSize bytes.
func (d *decoder) partitions(minSize int, one func() Partition) []Partition {
	out := make([]Partition, d.count(minSize))
	for i := range out {
		out[i] = one()
	}
	return out
}

func (d *decoder) changes(minSize int, one func() Partition) []PartitionChange {
	out := make([]PartitionChange, d.count(minSize+1))
	for i := range out {
		out[i] = PartitionChange{d.int32(), one()}
	}
	return out
}

func (d *decoder) topic(minSize int, one func() Partition) *TopicCreated {
	r := &TopicCreated{ID: d.id()}
	r.Name = d.string()
	r.Config = d.strings()
	r.Partitions = d.partitions(minSize, one)
	return r
}

func (d *decoder) broker() Broker {
	b := Broker{
		ID: kafka.BrokerID(d.int32()), Epoch: kafka.BrokerEpoch(d.varint()), Incarnation: d.uuid(),
		Rack: d.string(), Fenced: d.bool(),
	}
	for range d.count(len(b.Incarnation)) {
		b.Directories = append(b.Directories, d.uuid())
	}
	for range d.count(3) {
		e := Endpoint{Name: d.string(), Host: d.string(), Port: d.int32()}
		b.Endpoints = append(b.Endpoints, e)
	}
	if len(b.Endpoints) > 0 {
		b.Endpoint = b.Endpoints[0]
	}
	return b
}
