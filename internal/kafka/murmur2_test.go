package kafka_test

import (
	"testing"

	"github.com/strandline/strandline/internal/kafka"
)

// The hashes are those of Kafka's own test of Utils.murmur2; a partition is
// their lower 31 bits modulo the partitions.
func TestPartitionOfKey(t *testing.T) {
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int32{1, 7, 50, 1 << 30} {
			if got, want := kafka.PartitionOfKey([]byte(key), n), (hash&0x7fffffff)%n; got != want {
				t.Errorf("%q of %d partitions: %d, want %d", key, n, got, want)
			}
		}
	}
}
