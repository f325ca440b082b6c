package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// The kinds of records in __consumer_offsets: the first two bytes of a key.
// Kinds 3 and up belong to protocols that this machine does not speak.
const (
	kindOffsetCommitLegacy int16 = 0
	kindOffsetCommit       int16 = 1
	kindGroupMetadata      int16 = 2
)

// The versions of values that are written; all older ones are read.
const (
	offsetValueVersion       int16 = 4
	offsetExpireValueVersion int16 = 1 // The only one with an expiry of its own.
	offsetValueVersionMax    int16 = 4
	groupValueVersion        int16 = 3
	groupValueVersionMax     int16 = 4
)

// maxString is the longest string that the record formats can hold.
const maxString = 1<<15 - 1

// noExpiry marks an offset that expires with its group.
const noExpiry int64 = -1

// ErrUnknownRecord says that a record is of a kind this machine does not know,
// such as one of the consumer protocol of KIP-848.
var ErrUnknownRecord = errors.New("unknown kind of __consumer_offsets record")

// DecodeError says that a record's bytes are not what its kind promises.
type DecodeError struct {
	Kind   int16
	Part   string // "key" or "value".
	Reason string
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("__consumer_offsets record of kind %d: bad %s: %s", e.Kind, e.Part, e.Reason)
}

// Offset is a committed offset.
type Offset struct {
	Offset      kafka.Offset
	LeaderEpoch kafka.LeaderEpoch // kafka.NoLeaderEpoch if the consumer gave none.
	Metadata    string
	CommittedMs int64
	ExpiresMs   int64         // Set by consumers of before KIP-211 only, else -1.
	TopicID     kafka.TopicID // Zero in records of before Kafka 4.1.

	at kafka.Offset // Of its record.
}

func appendOffsetKey(dst []byte, group, topic string, partition int32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(kindOffsetCommit))
	dst = appendString(dst, group)
	dst = appendString(dst, topic)
	return binary.BigEndian.AppendUint32(dst, uint32(partition))
}

func appendOffsetValue(dst []byte, o *Offset) []byte {
	v := kmsg.OffsetCommitValue{
		Version: offsetValueVersion, Offset: int64(o.Offset), LeaderEpoch: int32(o.LeaderEpoch),
		Metadata: o.Metadata, CommitTimestamp: o.CommittedMs, TopicID: o.TopicID,
	}
	if o.ExpiresMs != noExpiry {
		v.Version, v.ExpireTimestamp = offsetExpireValueVersion, o.ExpiresMs
	}
	return v.AppendTo(dst)
}

func appendGroupKey(dst []byte, group string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(kindGroupMetadata))
	return appendString(dst, group)
}

func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// key is a decoded record key. Its strings alias the record.
type key struct {
	kind      int16
	group     []byte
	topic     []byte
	partition int32
}

func decodeKey(b []byte) (key, error) {
	if len(b) < 2 {
		return key{}, &DecodeError{-1, "key", "shorter than its kind"}
	}
	k := key{kind: int16(binary.BigEndian.Uint16(b))}
	rest, ok := b[2:], true
	switch k.kind {
	case kindOffsetCommitLegacy, kindOffsetCommit:
		if k.group, rest, ok = cutString(rest); !ok {
			return key{}, &DecodeError{k.kind, "key", "cut off in the group id"}
		}
		if k.topic, rest, ok = cutString(rest); !ok || len(rest) < 4 {
			return key{}, &DecodeError{k.kind, "key", "cut off in the topic"}
		}
		k.partition, rest = int32(binary.BigEndian.Uint32(rest)), rest[4:]
	case kindGroupMetadata:
		if k.group, rest, ok = cutString(rest); !ok {
			return key{}, &DecodeError{k.kind, "key", "cut off in the group id"}
		}
	default:
		return k, ErrUnknownRecord
	}
	if len(rest) > 0 {
		return key{}, &DecodeError{k.kind, "key", "bytes left over"}
	}
	return k, nil
}

func cutString(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	if b = b[2:]; n < 0 || n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// decodeOffset decodes an offset commit value; strings are copies.
func decodeOffset(kind int16, b []byte) (Offset, error) {
	v := kmsg.NewOffsetCommitValue()
	if err := checkVersion(kind, b, offsetValueVersionMax); err != nil {
		return Offset{}, err
	}
	if err := v.ReadFrom(b); err != nil {
		return Offset{}, &DecodeError{kind, "value", err.Error()}
	}
	o := Offset{
		Offset: kafka.Offset(v.Offset), LeaderEpoch: kafka.NoLeaderEpoch, Metadata: v.Metadata,
		CommittedMs: v.CommitTimestamp, ExpiresMs: noExpiry, TopicID: v.TopicID,
	}
	if v.Version >= 3 {
		o.LeaderEpoch = kafka.LeaderEpoch(v.LeaderEpoch)
	}
	if v.Version == offsetExpireValueVersion && v.ExpireTimestamp >= 0 {
		o.ExpiresMs = v.ExpireTimestamp
	}
	return o, nil
}

// decodeGroup decodes a group metadata value; its byte slices alias b.
func decodeGroup(b []byte) (*kmsg.GroupMetadataValue, error) {
	v := kmsg.NewGroupMetadataValue()
	if err := checkVersion(kindGroupMetadata, b, groupValueVersionMax); err != nil {
		return nil, err
	}
	if err := v.ReadFrom(b); err != nil {
		return nil, &DecodeError{kindGroupMetadata, "value", err.Error()}
	}
	seen := make(map[string]bool, len(v.Members))
	for i := range v.Members {
		id := v.Members[i].MemberID
		if id == "" || seen[id] {
			return nil, &DecodeError{kindGroupMetadata, "value", "a member id is empty or there twice"}
		}
		seen[id] = true
	}
	return &v, nil
}

// checkVersion refuses values of versions that are not known: their layout is
// anybody's guess (KIP-915 promises tagged fields only, up to the newest).
func checkVersion(kind int16, b []byte, newest int16) error {
	if len(b) < 2 {
		return &DecodeError{kind, "value", "shorter than its version"}
	}
	if v := int16(binary.BigEndian.Uint16(b)); v < 0 || v > newest {
		return &DecodeError{kind, "value", fmt.Sprintf("version %d is not one of 0 to %d", v, newest)}
	}
	return nil
}
