package shard_test

import (
	"bytes"
	"testing"

	"github.com/strandline/strandline/internal/coordinator/shard"
)

// TestRecordsSurviveGrowth: records are good until Reset, however many follow,
// and do not run into each other.
func TestRecordsSurviveGrowth(t *testing.T) {
	var fx shard.Effects
	for round := range 3 {
		fx.Reset()
		for i := range 2000 {
			fill := func(dst []byte) []byte {
				return append(dst, bytes.Repeat([]byte{byte(i)}, 100)...)
			}
			if i%10 == 0 {
				fx.Append(fill, nil)
				continue
			}
			fx.Append(fill, fill)
		}
		for i, kv := range fx.Records {
			want := bytes.Repeat([]byte{byte(i)}, 100)
			if !bytes.Equal(kv.Key, want) || cap(kv.Key) != len(kv.Key) {
				t.Fatalf("round %d: key %d is %x", round, i, kv.Key[:4])
			}
			if i%10 == 0 {
				want = nil
			}
			if (kv.Value == nil) != (want == nil) || !bytes.Equal(kv.Value, want) {
				t.Fatalf("round %d: value %d is %x", round, i, kv.Value)
			}
		}
	}
}

// TestReset: nothing is left of the step before, and nobody's reply is kept.
func TestReset(t *testing.T) {
	var fx shard.Effects
	fx.Reply(nil, "nobody asked")
	if len(fx.Replies) != 0 {
		t.Error("a reply to nobody")
	}
	fx.Append(func(dst []byte) []byte { return append(dst, 'k') }, nil)
	fx.Subject = "g"
	fx.WaitFor(7)
	fx.WaitFor(3)
	if fx.MinHighWatermark != 8 {
		t.Errorf("waits for %d, want 8", fx.MinHighWatermark)
	}
	fx.Reset()
	if len(fx.Records) != 0 || fx.MinHighWatermark != 0 || fx.Subject != "" {
		t.Errorf("after Reset: %+v", fx)
	}
}

// TestEmptyValueIsNoTombstone: a value of no bytes is a value.
func TestEmptyValueIsNoTombstone(t *testing.T) {
	var fx shard.Effects
	empty := func(dst []byte) []byte { return dst }
	fx.Append(func(dst []byte) []byte { return append(dst, 'k') }, empty)
	if fx.Records[0].Value == nil {
		t.Error("an empty value became a tombstone")
	}
	var first shard.Effects
	first.Append(empty, empty)
	if first.Records[0].Value == nil {
		t.Error("an empty value in an empty arena became a tombstone")
	}
}
