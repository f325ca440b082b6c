package coordinator

import "unicode/utf16"

// PartitionOf returns the partition of an internal topic that a group or
// transactional id belongs to: Kafka's rule, the id's Java hash code without its
// sign, modulo the partitions.
func PartitionOf(id string, partitions int32) int32 {
	var hash int32
	for _, r := range id {
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			hash = 31*(31*hash+high) + low
			continue
		}
		hash = 31*hash + r
	}
	if hash = max(hash, -hash); hash < 0 { // The least int32 has no positive twin.
		hash = 0
	}
	return hash % partitions
}
