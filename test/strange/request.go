package strange

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// maker makes one request.
type maker struct {
	*rand.Rand
	world *World
	// odd is how likely a value is one that nobody would send.
	odd float64
	// crowded says that a list is long already: lists in lists need not be.
	crowded bool
}

// newMaker makes some requests that are nearly right and some that are not at all.
func newMaker(r *rand.Rand, w *World) *maker {
	return &maker{Rand: r, world: w, odd: []float64{0, 0.02, 0.1, 0.5}[r.IntN(4)]}
}

// oneOf returns one of several values.
func oneOf[T any](m *maker, values ...T) T { return values[m.IntN(len(values))] }

// isOdd decides whether the next value is an odd one.
func (m *maker) isOdd() bool { return m.Float64() < m.odd }

// request makes a request.
func (m *maker) request(key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	m.fill(reflect.ValueOf(req).Elem(), "", "")
	req.SetVersion(version)
	m.soften(req)
	return req
}

// fill gives a value to a field of a struct, or to what is in it.
func (m *maker) fill(v reflect.Value, of, name string) {
	switch v.Kind() {
	case reflect.Pointer:
		if m.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			m.fill(v.Elem(), of, name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Name != "Version" && f.Type != reflect.TypeFor[kmsg.Tags]() {
				m.fill(v.Field(i), v.Type().Name(), f.Name)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(m.bytes(name))
			return
		}
		n := m.count()
		if n < 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			m.fill(v.Index(i), of, strings.TrimSuffix(name, "s"))
		}
	case reflect.Array:
		m.array(v)
	case reflect.String:
		v.SetString(m.text(of, name))
	case reflect.Bool:
		v.SetBool(m.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(oneOf(m, 0, 1, -1, math.NaN(), math.Inf(1), math.MaxFloat64))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(m.Uint32()) >> m.IntN(32))
	default:
		v.SetInt(m.number(name, v.Type().Bits()))
	}
}

// count is how long an array is; -1 for none at all.
func (m *maker) count() int {
	switch {
	case m.isOdd() && !m.crowded:
		n := oneOf(m, -1, 0, 20, 500)
		m.crowded = n > 0
		return n
	case m.IntN(12) == 0:
		return -1
	}
	return m.IntN(4)
}

// array fills what is mostly an id of 16 bytes.
func (m *maker) array(v reflect.Value) {
	id := pick(m.world, m.Rand, func(w *World) [][16]byte { return w.topicIDs }, [16]byte{})
	if m.isOdd() {
		binary.BigEndian.PutUint64(id[m.IntN(8):], m.Uint64())
	}
	if v.Len() == len(id) && v.Type().Elem().Kind() == reflect.Uint8 {
		reflect.Copy(v, reflect.ValueOf(id))
	}
}

// text makes a string for a field.
func (m *maker) text(of, name string) string {
	if m.isOdd() {
		return oneOf(m, "", ".", "..", "a/b", "\x00", "ä\xff", "__consumer_offsets", "__transaction_state", "__share_group_state",
			strings.Repeat("x", 249), strings.Repeat("y", 250), strings.Repeat("z", 32767), "-1", "2147483648", "null")
	}
	switch {
	case name == "Topic", name == "Name" && strings.HasPrefix(of, "CreateTopics"), strings.HasSuffix(name, "TopicName"):
		return oneOf(m, Topics()...)
	case strings.Contains(name, "Group") && !strings.Contains(name, "Type"):
		return oneOf(m, "pack-0", "pack-1", "pack-2")
	case name == "MemberID", name == "LeaderID":
		return pick(m.world, m.Rand, func(w *World) []string { return w.members }, "")
	case name == "Member":
		return pick(m.world, m.Rand, func(w *World) []string { return w.members }, "m")
	case strings.HasPrefix(name, "Transactional"):
		return oneOf(m, "theft-0", "theft-1", "theft-2")
	case name == "InstanceID":
		return oneOf(m, "", "i-0", "i-1")
	case name == "ProtocolType":
		return oneOf(m, "consumer", "consumer", "connect")
	case name == "Protocol", name == "ProtocolName", name == "Name" && strings.HasPrefix(of, "JoinGroup"):
		return oneOf(m, "range", "roundrobin", "cooperative-sticky")
	case name == "ResourceName":
		return oneOf(m, append(Topics(), "1", "2", "")...)
	case name == "Name" || name == "ConfigName":
		return oneOf(m, configs()...)
	case name == "Value":
		return oneOf(m, "1", "0", "-1", "1000", "9223372036854775807", "compact", "delete", "compact,delete", "zstd", "true", "1:1", "*")
	case name == "ClusterID":
		return m.world.ClusterID()
	case name == "Host":
		return oneOf(m, "127.0.0.1", "localhost", "203.0.113.9")
	}
	return oneOf(m, "a", "consumer", "consumer-1", "Empty", "Stable", "Ongoing", "")
}

// configs are settings of topics: a stranger may also change those of brokers, and close
// the door behind itself.
func configs() []string {
	return []string{
		"retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "cleanup.policy", "max.message.bytes",
		"min.insync.replicas", "flush.messages", "flush.ms", "compression.type", "index.interval.bytes",
		"message.timestamp.type", "message.timestamp.after.max.ms", "unclean.leader.election.enable",
		"min.cleanable.dirty.ratio", "delete.retention.ms", "leader.replication.throttled.replicas",
		"follower.replication.throttled.replicas", "no.such.config",
	}
}

// number makes an integer for a field.
func (m *maker) number(name string, bits int) int64 {
	least, greatest := int64(-1)<<(bits-1), int64(1)<<(bits-1)-1
	if m.isOdd() {
		return clamp(oneOf(m, least, greatest, -1, -2, -3, 0, 1, 2, math.MaxInt32, math.MinInt32, math.MaxInt16,
			math.MaxInt64, m.Int64N(1<<20)), least, greatest)
	}
	n := int64(m.IntN(5)) - 1
	switch {
	case name == "ProducerID":
		n = pick(m.world, m.Rand, func(w *World) []producer { return w.producers }, producer{id: -1}).id
	case name == "ProducerEpoch":
		n = pick(m.world, m.Rand, func(w *World) []producer { return w.producers }, producer{epoch: -1}).epoch64()
	case name == "SessionTimeoutMillis":
		n = 6000 + m.Int64N(4000)
	case name == "TransactionTimeoutMillis":
		n = 1 + m.Int64N(3000)
	case strings.Contains(name, "Timeout"), strings.Contains(name, "Wait"):
		n = m.Int64N(200)
	case strings.Contains(name, "Bytes"):
		n = m.Int64N(1 << 20)
	case strings.HasSuffix(name, "Offset"), strings.HasSuffix(name, "Timestamp"):
		n = m.Int64N(20) - 5
	case name == "ReplicationFactor":
		n = oneOf[int64](m, -1, 1, 2, 3)
	case name == "Broker", name == "BrokerID", strings.HasPrefix(name, "Replica"), name == "NodeID", name == "VoterID":
		n = 1 + m.Int64N(3)
	case name == "Port":
		n = 1 + m.Int64N(1000)
	case name == "ResourceType":
		n = oneOf[int64](m, 2, 2, 2, 4, 8, 32)
	}
	return clamp(n, least, greatest)
}

func (p producer) epoch64() int64 { return int64(p.epoch) }

func clamp(n, least, greatest int64) int64 { return max(least, min(n, greatest)) }

// bytes makes the value of a field of bytes; nil too.
func (m *maker) bytes(name string) []byte {
	if name == "Records" {
		return m.records()
	}
	switch {
	case m.isOdd():
		return m.noise(m.IntN(2000))
	case m.IntN(8) == 0:
		return nil
	case strings.Contains(name, "Metadata"), strings.Contains(name, "UserData"):
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Topics = Topics()
		meta.Version = int16(m.IntN(4))
		return meta.AppendTo(nil)
	case strings.Contains(name, "Assignment"):
		a := kmsg.NewConsumerMemberAssignment()
		t := kmsg.NewConsumerMemberAssignmentTopic()
		t.Topic, t.Partitions = Topics()[0], []int32{0, 1}
		a.Topics = append(a.Topics, t)
		return a.AppendTo(nil)
	}
	return m.noise(m.IntN(40))
}

func (m *maker) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(m.Uint32())
	}
	return b
}

// records makes batches, some of which are not what they say.
func (m *maker) records() []byte {
	var out []byte
	for range 1 + m.IntN(2)*m.IntN(2) {
		codec := record.Codec(m.IntN(5))
		b := record.NewBuilder(codec, 0)
		if m.IntN(2) == 0 {
			p := pick(m.world, m.Rand, func(w *World) []producer { return w.producers }, producer{})
			b.SetProducer(kafka.ProducerID(p.id), kafka.ProducerEpoch(p.epoch), int32(m.IntN(4)))
		}
		for range 1 + m.IntN(5) {
			b.Append(m.number("Timestamp", 64), m.noise(m.IntN(10)), m.noise(m.IntN(1000)), nil)
		}
		out = append(out, b.Build()...)
	}
	for m.isOdd() && len(out) > 0 {
		out[m.IntN(len(out))] ^= 1 << m.IntN(8)
		if m.IntN(2) == 0 {
			out = reseal(out)
		}
	}
	if m.isOdd() {
		out = out[:m.IntN(len(out)+1)]
	}
	return out
}

// reseal gives the first batch a checksum that fits, so that more than that is looked at.
func reseal(b []byte) []byte {
	const lengthAt, crcAt, attributesAt = 8, 17, 21
	if len(b) < attributesAt {
		return b
	}
	end := 12 + int64(int32(binary.BigEndian.Uint32(b[lengthAt:])))
	if end < attributesAt || end > int64(len(b)) {
		return b
	}
	b = slices.Clone(b)
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:end], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// soften takes from a request what would do no more than what it says, and hurt: brokers
// that are told to vote no more, or to take no more connections.
func (m *maker) soften(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.RemoveRaftVoterRequest:
		r.VoterID = int32(m.IntN(2)) * 7
	case *kmsg.BrokerRegistrationRequest:
		r.BrokerID = 7 // Who says to be another is believed, and that one makes way.
	case *kmsg.BrokerHeartbeatRequest:
		r.BrokerID = 7
	case *kmsg.CreateTopicsRequest:
		for i := range r.Topics {
			if n := &r.Topics[i].NumPartitions; *n > 20 && *n < 1<<20 {
				*n = 3
			}
		}
	}
}
