package kafka

import "encoding/binary"

// Round is a question of a leader to its followers: do you still follow this leader epoch?
// A follower that was told of one says so with its next fetch of the partition. Leaders and
// followers tell each other in a tagged field of Fetch, RoundTag of a partition. The zero
// Round is none.
type Round struct {
	LeaderEpoch LeaderEpoch
	Number      int64
}

// RoundTag is the number of the tagged field, far from those that Kafka uses.
const RoundTag = 10_000

// RoundSize is the size of the field.
const RoundSize = 4 + 8

// AppendTo appends the field's value.
func (r Round) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.LeaderEpoch))
	return binary.BigEndian.AppendUint64(dst, uint64(r.Number))
}

// ParseRound reads the field's value; false if it is none.
func ParseRound(b []byte) (Round, bool) {
	if len(b) != RoundSize {
		return Round{}, false
	}
	r := Round{
		LeaderEpoch: LeaderEpoch(binary.BigEndian.Uint32(b)), Number: int64(binary.BigEndian.Uint64(b[4:])),
	}
	return r, r.Number > 0
}
