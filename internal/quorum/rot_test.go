package quorum

import (
	"bytes"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
)

// threeFramesAt is a segment of three frames, of which the last has these entries and
// begins at another place within a sector for each shift up to 63.
func threeFramesAt(shift int, entries []*raftpb.Entry) (data []byte, last int) {
	h := segmentHeader{sequence: 1, base: entryID{1, 1}, firstFrame: 1, node: 2, salt: 7}
	data = appendFrame(h.appendTo(nil), h.salt, 1, hardState{1, 1, 1}, nil)
	filler := bytes.Repeat([]byte("f"), 8*shift)
	data = appendFrame(data, h.salt, 2, hardState{1, 1, 1}, []*raftpb.Entry{entry(2, 1, string(filler))})
	last = len(data)
	return appendFrame(data, h.salt, 3, hardState{1, 1, 2}, entries), last
}

// Whichever bit of the last frame is flipped, however it lies across sectors and
// whatever follows: it is rot, or nothing was lost.
func TestFlippedBitInTheLastFrame(t *testing.T) {
	for what, entries := range map[string][]*raftpb.Entry{
		"a vote":   nil,
		"an entry": {entry(3, 1, "what was decided")},
		"entries":  {entry(3, 1, "what was decided"), entry(4, 1, ""), entry(5, 1, "more of it\x00\x00")},
		"sectors":  {entry(3, 1, string(bytes.Repeat([]byte("sector"), 200)))},
	} {
		for shift := range 64 {
			data, last := threeFramesAt(shift, entries)
			if what == "sectors" && shift%9 != 0 {
				continue // Long.
			}
			for _, behind := range []int{0, 8, 900} {
				tail := append(bytes.Clone(data), make([]byte, behind)...)
				for position := last; position < len(data); position++ {
					bit := byte(1) << (position % 8)
					tail[position] ^= bit
					s, err := parseSegment("p", tail)
					tail[position] ^= bit
					var corrupt *CorruptionError
					rot := errors.As(err, &corrupt) && corrupt.Position == int64(last) && len(s.frames) == 2
					padding := err == nil && len(s.frames) == 3 && data[position] == paddingByte
					if !rot && !padding {
						t.Fatalf("%s at %d, byte %d of %d, %d zeros behind: %d frames, %v",
							what, last, position-last, len(data)-last, behind, len(s.frames), err)
					}
				}
			}
		}
	}
}

// Bytes that are no frame at all, where one was, are rot too, and so is a frame of
// which the beginning of a sector changed.
func TestGarbageInTheLastFrame(t *testing.T) {
	data, last := threeFramesAt(3, []*raftpb.Entry{entry(3, 1, string(bytes.Repeat([]byte("sector"), 200)))})
	for from := last; from < len(data); from += 16 {
		for _, n := range []int{1, 8, 100, len(data)} {
			broken := bytes.Clone(data)
			for i := from; i < min(from+n, len(data)); i++ {
				broken[i] = broken[i]*7 + 3
			}
			_, err := parseSegment("p", append(broken, make([]byte, 600)...))
			var corrupt *CorruptionError
			if !errors.As(err, &corrupt) {
				t.Errorf("%d bytes from %d on: %v", n, from-last, err)
			}
		}
	}
}

// What a kill or a loss of power leaves of a frame is a torn write, and never rot: the
// file may end anywhere within it, and its sectors are there or read as zeros.
func TestTornFrameIsNotRot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawEntries(t)
		for _, e := range entries {
			n := rapid.IntRange(0, 3).Draw(t, "times")
			e.Data = bytes.Repeat(append(e.Data, make([]byte, rapid.IntRange(0, 600).Draw(t, "zeros"))...), n)
		}
		data, last := threeFramesAt(rapid.IntRange(0, 63).Draw(t, "shift"), entries)
		torn := bytes.Clone(data)
		for p := last; p < len(data); {
			next := min(p+sectorBytes-p%sectorBytes, len(data))
			if rapid.Bool().Draw(t, "lost") {
				clear(torn[p:next])
			}
			p = next
		}
		if rapid.Bool().Draw(t, "cut") {
			torn = torn[:rapid.IntRange(last, len(torn)).Draw(t, "length")]
		} else { // What an earlier repair filled with zeros stays that long.
			torn = append(torn, make([]byte, rapid.SampledFrom([]int{0, 3, 700}).Draw(t, "behind"))...)
		}
		s, err := parseSegment("p", torn)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", len(torn)-last, len(data)-last, err)
		}
		whole := len(torn) >= len(data) && bytes.Equal(torn[last:len(data)], data[last:])
		if whole && len(s.frames) != 3 {
			t.Fatal("it was all there")
		}
	})
}

// The length of a frame is known from its entries too, whatever they are.
func TestPayloadLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := drawEntries(t)
		whole := appendFrame(nil, 5, 1, hardState{1, 2, 3}, entries)
		payload, _, _, ok := cutFrame(whole, 5)
		if !ok {
			t.Fatal("no frame")
		}
		got, ok := payloadLength(append(bytes.Clone(payload), whole...))
		if !ok || got != int64(len(payload)) {
			t.Fatalf("%d, %v: it has %d bytes", got, ok, len(payload))
		}
		n := rapid.IntRange(0, len(payload)-1).Draw(t, "cut")
		if _, ok := payloadLength(payload[:n]); ok {
			t.Fatalf("cut at %d of %d and measured", n, len(payload))
		}
	})
}

// A log is given up only where the others are a majority, whatever of its changes of
// voters was committed.
func TestWhoDecidesWithoutThisNode(t *testing.T) {
	change := func(index uint64, kind raftpb.ConfChangeType, id uint64) *raftpb.Entry {
		data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
			{Type: new(kind), NodeId: new(id)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		e := entry(index, 1, string(data))
		e.Type = new(raftpb.EntryConfChangeV2)
		return e
	}
	add := func(index, id uint64) *raftpb.Entry { return change(index, raftpb.ConfChangeAddNode, id) }
	remove := func(index, id uint64) *raftpb.Entry { return change(index, raftpb.ConfChangeRemoveNode, id) }
	for _, test := range []struct {
		name    string
		voters  []uint64
		entries []*raftpb.Entry
		commit  uint64
		want    bool
	}{
		{"alone", []uint64{1}, nil, 1, false},
		{"of two", []uint64{1, 2}, nil, 1, false},
		{"of three", []uint64{1, 2, 3}, nil, 1, true},
		{"no voter", []uint64{2}, nil, 1, true},
		{"two joined", []uint64{1}, []*raftpb.Entry{add(2, 2), add(3, 3)}, 3, true},
		{"two may have joined", []uint64{1}, []*raftpb.Entry{add(2, 2), add(3, 3)}, 2, false},
		{"one may have left", []uint64{1, 2, 3}, []*raftpb.Entry{remove(2, 3)}, 1, false},
		{"one left and came back", []uint64{1, 2, 3}, []*raftpb.Entry{remove(2, 3), add(3, 3)}, 3, true},
		{"this one left", []uint64{1, 2}, []*raftpb.Entry{remove(2, 1)}, 2, true},
	} {
		s := &scan{
			snapshot: snapshot{id: bootstrapID(), conf: &raftpb.ConfState{Voters: test.voters}},
			segments: []scannedSegment{{segmentContent: segmentContent{
				header: segmentHeader{base: bootstrapID()},
				frames: []frame{{hard: hardState{1, 0, test.commit}, entries: test.entries}},
			}}},
		}
		if got := s.othersDecide(Options{NodeID: 0}); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	for voters, want := range map[string]bool{"\x00": false, "\x00\x01": false, "\x00\x01\x02": true, "\x01": true, "": false} {
		o := Options{NodeID: 0}
		for _, id := range []byte(voters) {
			o.Voters = append(o.Voters, kafka.BrokerID(id))
		}
		if got := (&scan{}).othersDecide(o); got != want {
			t.Errorf("started with voters %v: %v", o.Voters, got)
		}
	}
}
