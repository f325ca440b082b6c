package group

import "github.com/strandline/strandline/internal/kafka"

// Committed is what a record of the offsets topic says of one group's offset in one
// partition. Offset is kafka.NoOffset where the record takes it back.
type Committed struct {
	Group, Topic string
	Partition    int32
	Offset       kafka.Offset
}

// ParseCommitted returns what a record commits; false if it commits no offset.
func ParseCommitted(recordKey, value []byte) (Committed, bool) {
	k, err := decodeKey(recordKey)
	if err != nil || k.kind != kindOffsetCommit && k.kind != kindOffsetCommitLegacy {
		return Committed{}, false
	}
	c := Committed{
		Group: string(k.group), Topic: string(k.topic), Partition: k.partition, Offset: kafka.NoOffset,
	}
	if value == nil {
		return c, true
	}
	o, err := decodeOffset(k.kind, value)
	c.Offset = o.Offset
	return c, err == nil
}
