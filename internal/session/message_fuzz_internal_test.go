package session

import (
	"bytes"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// FuzzQuery: what another broker asks is garbled, or it is exactly what was read out of
// it; and it makes us allocate no more than its size allows.
func FuzzQuery(f *testing.F) {
	fetch := query{
		kind: kindFetch, topic: kafka.TopicID{1}, parts: []Next{{Partition: 1, Offset: 7}, {Partition: 2}},
		maxBytes: 1 << 20, wait: 5 * time.Second, isolation: partition.ReadCommitted,
	}
	locate := query{kind: kindLocate, topic: kafka.TopicID{2}, parts: []Next{{Partition: 3}}, at: Place{Kind: AtTimestamp, TimestampMs: 9}}
	f.Add(fetch.append(nil))
	f.Add(locate.append(nil))
	f.Add([]byte{kindFetch})
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := readQuery(b)
		if err != nil {
			return
		}
		if len(q.parts) > len(b)/4 {
			t.Fatalf("%d partitions out of %d bytes", len(q.parts), len(b))
		}
		again, err := readQuery(q.append(nil))
		if err != nil {
			t.Fatalf("%+v can't be read back: %v", q, err)
		}
		if got, want := again.append(nil), q.append(nil); !bytes.Equal(got, want) {
			t.Fatalf("%x becomes %x", want, got)
		}
	})
}

// FuzzTold: the same for what another broker answers.
func FuzzTold(f *testing.F) {
	all := []told{
		{start: 1, highWatermark: 9, at: 3, batches: []byte("batch")},
		{err: &kafka.Error{Code: kafka.ErrNotLeaderOrFollower, Message: "elsewhere"}},
	}
	f.Add(appendTold(nil, all), 2)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, want int) {
		all, err := readTold(b, want)
		if err != nil {
			return
		}
		if len(all) != want {
			t.Fatalf("%d partitions, asked for %d", len(all), want)
		}
		if got := appendTold(nil, all); len(got) > len(b) {
			t.Fatalf("%d bytes were read out of %d", len(got), len(b))
		}
	})
}
