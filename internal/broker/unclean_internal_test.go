package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Of what a cut takes away, the latest offset of each group and partition is told, and
// nothing of other records.
func TestLostOffsets(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	commit := func(groupID string, partition int32, offset int64) {
		key := kmsg.OffsetCommitKey{Version: 1, Group: groupID, Topic: "orders", Partition: partition}
		value := kmsg.OffsetCommitValue{Version: 3, Offset: offset, LeaderEpoch: -1}
		b.Append(1, key.AppendTo(nil), value.AppendTo(nil), nil)
	}
	commit("g", 0, 10)
	commit("g", 1, 20)
	commit("g", 0, 11)
	other := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	b.Append(1, other.AppendTo(nil), []byte("what it is"), nil)
	b.Append(1, []byte("?"), nil, nil)
	gone := kmsg.OffsetCommitKey{Version: 1, Group: "h", Topic: "orders"}
	b.Append(1, gone.AppendTo(nil), nil, nil)
	lost := map[string]group.Committed{}
	collectCommitted(b.Build(), lost)
	got := map[group.Committed]bool{}
	for _, c := range lost {
		got[c] = true
	}
	want := []group.Committed{
		{Group: "g", Topic: "orders", Partition: 0, Offset: 11},
		{Group: "g", Topic: "orders", Partition: 1, Offset: 20},
		{Group: "h", Topic: "orders", Partition: 0, Offset: kafka.NoOffset},
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("%+v is not told", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("told: %v", got)
	}
}
