package strandline_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/strandlinetest"
)

// frame makes a request's frame; the header has no tags.
func frame(req kmsg.Request, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 7)      // Correlation id.
	b = binary.BigEndian.AppendUint16(b, 0xffff) // No client id.
	b = append(b, body...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestHangUpWhileParked: a client that goes away while its join waits for other
// members costs the broker nothing.
func TestHangUpWhileParked(t *testing.T) {
	srv := strandlinetest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	member := client(t, srv.Addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.AllowAutoTopicCreation())
	if err := member.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := member.PollFetches(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version = 3 // Without the round for a member id.
	join.Group, join.ProtocolType = "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky"}, {Name: "range"}}
	for range 20 {
		c, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(frame(join, join.Version, join.AppendTo(nil))); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := member.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("w")}).FirstErr(); err != nil {
		t.Fatalf("the broker is gone: %v", err)
	}
}

// TestApiVersionsOfTheFuture: whatever the body of an unknown version is, the
// answer is one that every client can read.
func TestApiVersionsOfTheFuture(t *testing.T) {
	srv := strandlinetest.Start(t)
	for _, body := range [][]byte{nil, {0}, {1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		c, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(frame(kmsg.NewPtrApiVersionsRequest(), 99, body)); err != nil {
			t.Fatal(err)
		}
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatalf("body %v: %v", body, err)
		}
		answer := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(answer[4:]); err != nil || resp.ErrorCode != 35 || len(resp.ApiKeys) == 0 {
			t.Errorf("body %v: code %d, %d keys, %v", body, resp.ErrorCode, len(resp.ApiKeys), err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
