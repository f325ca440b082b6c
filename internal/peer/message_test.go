package peer

import (
	"bytes"
	"encoding/binary"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// These tests are within the package: they are about bytes nobody else sees.

func sampleEnvelope() *envelope {
	return &envelope{
		clusterID: "a cluster",
		from:      quorum.Member{ID: 3, Directory: [16]byte{1, 2}, Address: "host:9093"},
		to:        quorum.Member{ID: 1, Directory: [16]byte{15: 9}},
		greeting:  true, fresh: true,
		messages: []*raftpb.Message{
			{Type: new(raftpb.MsgApp), From: new(uint64(4)), To: new(uint64(2)), Entries: []*raftpb.Entry{
				{Index: new(uint64(7)), Term: new(uint64(2)), Data: []byte("entry")},
			}},
			{Type: new(raftpb.MsgHeartbeat), From: new(uint64(4)), To: new(uint64(2)), Commit: new(uint64(6))},
		},
	}
}

func encode(t testing.TB, e *envelope) []byte {
	t.Helper()
	b, err := e.appendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEnvelopeRoundTrip(t *testing.T) {
	want := sampleEnvelope()
	body := encode(t, want)
	got, err := decodeEnvelope(body)
	if err != nil {
		t.Fatal(err)
	}
	if got.clusterID != want.clusterID || got.from != want.from || got.to != want.to ||
		!got.greeting || !got.fresh || len(got.messages) != 2 {
		t.Errorf("read back as %+v", got)
	}
	for i, m := range got.messages {
		if !proto.Equal(m, want.messages[i]) {
			t.Errorf("message %d is %v", i, m)
		}
	}
	for n := range body {
		if _, err := decodeEnvelope(body[:n]); err == nil {
			t.Errorf("cut at %d and read", n)
		}
	}
	if _, err := decodeEnvelope(append(body, 0)); err == nil {
		t.Error("read with a byte too many")
	}
}

func TestRaftResponseRoundTrip(t *testing.T) {
	want := raftResponse{code: kafka.ErrInvalidVoterKey, reason: "because", leader: 3, address: "h:1"}
	var got raftResponse
	b := want.AppendTo(nil)
	if err := got.ReadFrom(b); err != nil || got != want {
		t.Errorf("read back as %+v, %v", got, err)
	}
	want.code = kafka.ErrUnknownServerError
	if err := got.ReadFrom(want.AppendTo(nil)); err != nil || got.code != want.code {
		t.Errorf("read back as %+v, %v", got, err)
	}
	if err := got.ReadFrom(b[:len(b)-1]); err == nil {
		t.Error("cut short and read")
	}
}

func TestSkipTags(t *testing.T) {
	for name, c := range map[string]struct {
		in, rest string
		ok       bool
	}{
		"none":        {"\x00rest", "rest", true},
		"two":         {"\x02\x00\x01a\x05\x02bbrest", "rest", true},
		"nothing":     {"", "", false},
		"only header": {"\x00", "", true},
		"cut":         {"\x01\x00\x05ab", "", false},
		"no size":     {"\x01\x00", "", false},
	} {
		rest, err := skipTags([]byte(c.in))
		if (err == nil) != c.ok || string(rest) != c.rest {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
	}
}

// What takes far more memory decoded than on the wire is refused before it is decoded.
func TestEnvelopeIsNoBomb(t *testing.T) {
	message := func(field byte, n int) []byte { return bytes.Repeat([]byte{field<<3 | 2, 0}, n) }
	const entries, responses = 7, 14
	for _, c := range []struct {
		what    string
		message []byte
		ok      bool
	}{
		{"no entry", nil, true},
		{"as many entries as there may be", message(entries, maxEntries), true},
		{"an entry more", message(entries, maxEntries+1), false},
		{"a message in a message", message(responses, 1), false},
		{"a field cut short", []byte{entries<<3 | 2, 9}, false},
	} {
		body := encode(t, &envelope{})
		body = binary.AppendUvarint(append(body[:len(body)-1], 1), uint64(len(c.message)))
		if _, err := decodeEnvelope(append(body, c.message...)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// FuzzEnvelope reads arbitrary bytes: no panic, and what is read is written the same
// way again, but for what the protocol buffers within leave open.
func FuzzEnvelope(f *testing.F) {
	f.Add(encode(f, sampleEnvelope()))
	f.Add(encode(f, &envelope{}))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decodeEnvelope(body)
		if err != nil {
			return
		}
		again, err := decodeEnvelope(encode(t, e))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, again), encode(t, e)) {
			t.Fatal("written anew it differs")
		}
	})
}
