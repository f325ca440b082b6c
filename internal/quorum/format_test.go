package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
)

// These tests are within the package: they are about bytes nobody else sees.

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{
		Index: new(index), Term: new(term), Type: new(raftpb.EntryNormal), Data: []byte(data),
	}
}

func drawEntries(t *rapid.T) []*raftpb.Entry {
	var out []*raftpb.Entry
	for range rapid.IntRange(0, 4).Draw(t, "count") {
		e := entry(rapid.Uint64Range(1, maxIndex).Draw(t, "index"), rapid.Uint64().Draw(t, "term"),
			string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data")))
		e.Type = new(raftpb.EntryType(rapid.Int32Range(0, 2).Draw(t, "type")))
		out = append(out, e)
	}
	return out
}

func TestSegmentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := segmentHeader{
			sequence:   rapid.Uint64Range(1, maxIndex).Draw(t, "sequence"),
			base:       entryID{rapid.Uint64Range(0, maxIndex).Draw(t, "index"), rapid.Uint64().Draw(t, "term")},
			firstFrame: rapid.Uint64Range(1, maxIndex-10).Draw(t, "frame"),
			node:       rapid.Uint64().Draw(t, "node"),
			salt:       rapid.Uint32().Draw(t, "salt"),
		}
		want := segmentContent{header: h}
		data := h.appendTo(nil)
		for i := range rapid.Uint64Range(1, 4).Draw(t, "frames") {
			f := frame{
				hard:    hardState{rapid.Uint64().Draw(t, "term"), rapid.Uint64().Draw(t, "vote"), rapid.Uint64().Draw(t, "commit")},
				entries: drawEntries(t),
			}
			want.frames = append(want.frames, f)
			want.lastFrame = int64(len(data))
			data = appendFrame(data, h.salt, h.firstFrame+i, f.hard, f.entries)
			if got := int64(len(data)) - want.lastFrame; got != frameBytes(f.entries) {
				t.Fatalf("frame of %d bytes, frameBytes says %d", got, frameBytes(f.entries))
			}
		}
		want.end = int64(len(data))
		for _, tail := range []string{"", strings.Repeat("\x00", 100)} {
			got, err := parseSegment("p", append(data, tail...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compareSegments()...); diff != "" {
				t.Fatalf("read back (-want +got):\n%s", diff)
			}
		}
	})
}

func compareSegments() []cmp.Option {
	return []cmp.Option{
		cmp.AllowUnexported(segmentContent{}, segmentHeader{}, entryID{}, frame{}, hardState{}),
		protocmp.Transform(),
		cmpopts.EquateEmpty(),
	}
}

// threeFrames is a segment and where its frames begin.
func threeFrames() (data []byte, begins []int) {
	h := segmentHeader{sequence: 1, base: entryID{1, 1}, firstFrame: 1, node: 2, salt: 7}
	data = h.appendTo(nil)
	for i := range uint64(3) {
		begins = append(begins, len(data))
		data = appendFrame(data, h.salt, i+1, hardState{1, 1, i + 1},
			[]*raftpb.Entry{entry(i+2, 1, "the data of an entry")})
	}
	return data, append(begins, len(data))
}

// A segment cut anywhere is read up to the last whole frame.
func TestTornSegment(t *testing.T) {
	data, begins := threeFrames()
	for cut := range data {
		got, err := parseSegment("p", data[:cut])
		frames := 0
		for frames < 3 && wholeWithoutPadding(data, begins[frames], cut) {
			frames++
		}
		if frames == 0 {
			if !errors.Is(err, errUnfinished) {
				t.Errorf("cut at %d: %v", cut, err)
			}
			continue
		}
		if err != nil || len(got.frames) != frames {
			t.Errorf("cut at %d: %d frames, want %d; %v", cut, len(got.frames), frames, err)
		}
		if got.end != int64(begins[frames]) {
			t.Errorf("cut at %d: end %d, want %d", cut, got.end, begins[frames])
		}
	}
}

func wholeWithoutPadding(data []byte, begin, cut int) bool {
	length := int(binary.LittleEndian.Uint32(data[begin:]))
	return begin+frameHeaderBytes+length <= cut
}

// A flipped bit is never read as something else, and never taken for a torn write.
func TestFlippedBit(t *testing.T) {
	data, _ := threeFrames()
	whole, err := parseSegment("p", data)
	if err != nil {
		t.Fatal(err)
	}
	for position := range data {
		for bit := range 8 {
			broken := append([]byte(nil), data...)
			broken[position] ^= 1 << bit
			got, err := parseSegment("p", broken)
			var corrupt *CorruptionError
			switch {
			case errors.As(err, &corrupt):
			case err == nil && len(got.frames) == 3: // Padding.
				if diff := cmp.Diff(whole, got, compareSegments()...); diff != "" {
					t.Fatalf("flip at %d: %s", position, diff)
				}
			default:
				t.Fatalf("flip of bit %d at %d: %d frames, %v", bit, position, len(got.frames), err)
			}
		}
	}
}

// The bytes of an entry may look like frames to come; they pass for none.
func TestEntryCannotPassForAFrame(t *testing.T) {
	h := segmentHeader{sequence: 1, base: entryID{1, 1}, firstFrame: 1, node: 2, salt: 7}
	forged := appendFrame(nil, 8, 3, hardState{9, 9, 9}, nil)
	data := appendFrame(h.appendTo(nil), h.salt, 1, hardState{1, 1, 1}, nil)
	end := int64(len(data))
	data = appendFrame(data, h.salt, 2, hardState{1, 1, 1},
		[]*raftpb.Entry{entry(2, 1, strings.Repeat("\x00", 3)+string(forged))})
	data = data[:len(data)-5] // Torn.
	got, err := parseSegment("p", data)
	if err != nil || got.end != end || !got.torn {
		t.Errorf("end %d, torn %v, %v", got.end, got.torn, err)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint64(), 0, 5)
		want := snapshot{
			id: entryID{rapid.Uint64Range(1, maxIndex).Draw(t, "index"), rapid.Uint64().Draw(t, "term")},
			conf: &raftpb.ConfState{
				Voters: ids.Draw(t, "voters"), Learners: ids.Draw(t, "learners"),
				VotersOutgoing: ids.Draw(t, "outgoing"), LearnersNext: ids.Draw(t, "next"),
				AutoLeave: new(rapid.Bool().Draw(t, "leave")),
			},
			members: members{},
			data:    rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.Int32Min(0), 0, 3, rapid.ID[int32]).Draw(t, "members") {
			m := Member{ID: kafka.BrokerID(id), Address: rapid.StringN(0, 20, -1).Draw(t, "address")}
			copy(m.Directory[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "directory"))
			want.members[m.ID] = m
		}
		data := want.appendTo(nil, 5)
		got, node, err := parseSnapshot("p", data)
		if err != nil || node != 5 || got.id != want.id || string(got.data) != string(want.data) {
			t.Fatalf("read back %+v of node %d, %v", got, node, err)
		}
		if !maps.Equal(got.members, want.members) {
			t.Fatalf("members %v, want %v", got.members, want.members)
		}
		if !proto.Equal(got.conf, want.conf) {
			t.Fatalf("configuration %v, want %v", got.conf, want.conf)
		}
		broken := rapid.IntRange(0, len(data)-1).Draw(t, "position")
		data[broken] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if _, _, err := parseSnapshot("p", data); err == nil {
			t.Fatalf("byte %d changed and read", broken)
		}
		if _, _, err := parseSnapshot("p", data[:broken]); err == nil {
			t.Fatalf("cut at %d and read", broken)
		}
	})
}

// An unknown version is told from damage, whatever follows it.
func TestUnknownVersion(t *testing.T) {
	for _, magic := range []string{segmentMagic, snapshotMagic} {
		data := append([]byte(magic), 9, 0, 0, 0)
		data = binary.LittleEndian.AppendUint32(data, checksum(data))
		data = append(data, "anything at all, of any length"...)
		var err error
		if magic == segmentMagic {
			_, err = parseSegment("p", data)
		} else {
			_, _, err = parseSnapshot("p", data)
		}
		var version *VersionError
		if !errors.As(err, &version) || version.Version != 9 {
			t.Errorf("%q: %v", magic, err)
		}
	}
}

// FuzzSegment reads arbitrary bytes: no panic, and what is read is what was
// written.
func FuzzSegment(f *testing.F) {
	data, begins := threeFrames()
	f.Add(data, false)
	f.Add(data[:begins[2]+5], false)
	f.Add(append(data, 0, 0, 0), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			sealSegment(data)
		}
		s, err := parseSegment("p", data)
		if err != nil {
			return
		}
		again := s.header.appendTo(nil)
		for i, fr := range s.frames {
			again = appendFrame(again, s.header.salt, s.header.firstFrame+uint64(i), fr.hard, fr.entries)
		}
		if int64(len(again)) != s.end {
			t.Fatalf("written anew it takes %d bytes, not %d", len(again), s.end)
		}
		log := &memoryLog{base: s.header.base}
		for _, fr := range s.frames {
			if log.put(fr.entries) != nil {
				return
			}
		}
		checkDense(t, log)
	})
}

// sealSegment puts right checksums over whatever the fuzzer made, so that it
// gets past them.
func sealSegment(data []byte) {
	if len(data) < segmentHeaderBytes {
		return
	}
	copy(data, appendPreamble(nil, segmentMagic))
	binary.LittleEndian.PutUint32(data[60:], checksum(data[:60]))
	salt := binary.LittleEndian.Uint32(data[56:])
	for p := int64(segmentHeaderBytes); p+frameHeaderBytes <= int64(len(data)); {
		length := int64(binary.LittleEndian.Uint32(data[p:]))
		if p+frameHeaderBytes+length > int64(len(data)) {
			return
		}
		whole := data[p : p+frameHeaderBytes+length]
		binary.LittleEndian.PutUint32(whole[4:], frameChecksum(salt, whole))
		p += frameHeaderBytes + alignUp(length)
	}
}

// checkDense is the invariant of memoryLog.
func checkDense(t *testing.T, log *memoryLog) {
	t.Helper()
	before := log.base
	for _, e := range log.entries {
		if id := idOf(e); id.index != before.index+1 || id.term < before.term {
			t.Fatalf("entry %v after %v", id, before)
		}
		before = idOf(e)
	}
}

func FuzzSnapshot(f *testing.F) {
	s := snapshot{id: entryID{5, 2}, conf: &raftpb.ConfState{Voters: []uint64{1, 2}}, data: []byte("state")}
	f.Add(s.appendTo(nil, 1), false)
	f.Add(s.appendTo(nil, 1), true)
	s.members = members{3: {ID: 3, Address: "h:1"}, 4: {ID: 4}}
	f.Add(s.appendTo(nil, 1), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			sealSnapshot(data)
		}
		s, node, err := parseSnapshot("p", data)
		if err == nil && string(s.appendTo(nil, node)) != string(data) {
			t.Fatal("written anew it differs")
		}
	})
}

// A random history of appends, conflicts and compactions against a plain map.
func TestMemoryLogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := &memoryLog{base: entryID{1, 1}}
		model := map[uint64]uint64{1: 1} // Term by index.
		first, last, term := uint64(1), uint64(1), uint64(1)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				from := rapid.Uint64Range(first+1, last+1).Draw(t, "from")
				if from <= last {
					term++ // A conflict comes with a new leader.
				}
				count := rapid.Uint64Range(1, 3).Draw(t, "count")
				var entries []*raftpb.Entry
				for i := range count {
					entries = append(entries, entry(from+i, term, "x"))
					model[from+i] = term
				}
				last = from + count - 1
				if err := log.put(entries); err != nil {
					t.Fatal(err)
				}
			case 2:
				first = rapid.Uint64Range(first, last).Draw(t, "compact")
				log.compact(first)
			case 3:
				if err := log.put([]*raftpb.Entry{entry(last+2, term, "gap")}); err == nil {
					t.Fatal("took a gap")
				}
			}
			if log.base.index != first || log.last().index != last {
				t.Fatalf("holds (%d, %d], want (%d, %d]", log.base.index, log.last().index, first, last)
			}
			for i := first; i <= last; i++ {
				if !log.has(entryID{i, model[i]}) {
					t.Fatalf("entry %d is not of term %d", i, model[i])
				}
			}
		}
	})
}

// The document and the code say the same of what must never change by accident.
func TestDocumentMatchesConstants(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "format", "quorum-log.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("%q (segment)", segmentMagic), fmt.Sprintf("%q (snapshot)", snapshotMagic),
		fmt.Sprintf("Format version %d.", FormatVersion),
		fmt.Sprintf("Snapshots that tell of members have version %d", SnapshotVersion),
		fmt.Sprintf("preamble    %d\n", preambleBytes),
		fmt.Sprintf("headerCRC    4   of the %d bytes before", segmentHeaderBytes-4),
		fmt.Sprintf("headerCRC      4   of the %d bytes before", snapshotHeaderBytes-4),
		fmt.Sprintf("%x               to a multiple of %d\n", paddingByte, frameAlign),
		fmt.Sprintf("%q (identity)", identityMagic),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("quorum-log.md does not say %q", want)
		}
	}
}
