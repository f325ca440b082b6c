package txn_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// TestGoldenRecords pins the bytes that go to __transaction_state, so that Kafka's
// tools and brokers read them.
func TestGoldenRecords(t *testing.T) {
	w := newWorld()
	id := "x"
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version, init.TransactionalID, init.TransactionTimeoutMillis = 5, &id, 60_000
	w.ask(nil, init, 258)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID = 3, id, 258
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{3, 1}}}
	w.ask(nil, add, 0)
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.ProducerID, end.Commit = 5, id, 258, true
	w.ask(nil, end, 0)
	const (
		key      = "0000" + "000178"
		producer = "0001" + "0000000000000102"
		now      = "00000000000f4240"
		timeout  = "0000ea60"
	)
	want := []string{
		producer + "0000" + timeout + "00" + "00" + now + "ffffffffffffffff" + "00",
		producer + "0000" + timeout + "01" + "02" + "0274" + "03" + "00000001" + "00000003" + "00" + now + now +
			"01" + "00" + "08" + "0000000000000102",
		producer + "0001" + timeout + "02" + "02" + "0274" + "03" + "00000001" + "00000003" + "00" + now + now +
			"03" + "00" + "08" + "0000000000000102" + "02" + "02" + "0002" + "904e" + "02" + "0000",
	}
	if len(w.log) != len(want) {
		t.Fatalf("%d records, want %d", len(w.log), len(want))
	}
	for i, value := range want {
		if got := hex.EncodeToString(w.log[i].Key); got != key {
			t.Errorf("key %d\n got %s\nwant %s", i, got, key)
		}
		if got := hex.EncodeToString(w.log[i].Value); got != value {
			t.Errorf("value %d\n got %s\nwant %s", i, got, value)
		}
	}
}

func value(change func(v *kmsg.TxnMetadataValue)) []byte {
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.TimeoutMillis, v.State = 1, 5, 1000, 1
	v.Topics = []kmsg.TxnMetadataValueTopic{{Topic: "t", Partitions: []int32{1, 0, 1}}}
	change(&v)
	return v.AppendTo(nil)
}

func TestDecode(t *testing.T) {
	key := (&kmsg.TxnMetadataKey{TransactionalID: "x"}).AppendTo(nil)
	tests := []struct {
		name  string
		key   []byte
		value []byte
		want  string // Of the record, or of the error.
	}{
		{"version 0", key, value(func(v *kmsg.TxnMetadataValue) { v.Version = 0 }), "x Ongoing producer=5/0 previous=-1 t-0 t-1"},
		{"version 1", key, value(func(*kmsg.TxnMetadataValue) {}), "x Ongoing producer=5/0 previous=-1 t-0 t-1"},
		{"version 2", key, value(func(v *kmsg.TxnMetadataValue) { v.Version = 2 }), "version 2"},
		{"negative version", key, value(func(v *kmsg.TxnMetadataValue) { v.Version = -1 }), "version -1"},
		{"another tag", key, value(func(v *kmsg.TxnMetadataValue) { v.UnknownTags.Set(9, []byte{1}) }), "x Ongoing"},
		{"a tag too short", key, value(func(v *kmsg.TxnMetadataValue) { v.UnknownTags.Set(10_000, []byte{1}) }), "x Ongoing"},
		{"no value version", key, []byte{1}, "shorter than its version"},
		{"cut off", key, value(func(*kmsg.TxnMetadataValue) {})[:20], "bad value"},
		{"Dead", key, value(func(v *kmsg.TxnMetadataValue) { v.State = 6 }), "state 6 (Dead)"},
		{"unknown state", key, value(func(v *kmsg.TxnMetadataValue) { v.State = -1 }), "state -1 (Unknown)"},
		{"producer id", key, value(func(v *kmsg.TxnMetadataValue) { v.ProducerID = -1 }), "producer id -1"},
		{"producer epoch", key, value(func(v *kmsg.TxnMetadataValue) { v.ProducerEpoch = -1 }), "epoch -1"},
		{"next producer id", key, value(func(v *kmsg.TxnMetadataValue) { v.NextProducerID = 7 }), "next producer id 7"},
		{"timeout", key, value(func(v *kmsg.TxnMetadataValue) { v.TimeoutMillis = -1 }), "timeout of -1 ms"},
		{"partitions of none", key, value(func(v *kmsg.TxnMetadataValue) { v.State = 0 }), "partitions in state Empty"},
		{"no key version", []byte{0}, nil, "shorter than its version"},
		{"key version", []byte{0, 1, 0, 1, 'x'}, nil, "version 1"},
		{"key cut off", []byte{0, 0, 0, 9, 'x'}, nil, "bad key"},
		{"empty key", []byte{0, 0, 0, 0}, nil, "empty"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := txn.New(txn.Options{Settings: txn.DefaultSettings()})
			got, err := txn.DecodeRecord(test.key, test.value)
			replayed := s.Replay(shard.Record{Key: test.key, Value: test.value})
			if err != nil {
				if _, ok := errors.AsType[*txn.DecodeError](replayed); !ok {
					t.Errorf("Replay says %v", replayed)
				}
				got = err.Error()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestOneTransactionOfEach: requests about several are split, and others are told
// apart.
func TestOneTransactionOfEach(t *testing.T) {
	id := "x"
	one := kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: "x"}
	other := kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: "y"}
	both := &kmsg.AddPartitionsToTxnRequest{
		Version: 5, Transactions: []kmsg.AddPartitionsToTxnRequestTransaction{one, other},
	}
	tests := []struct {
		req  kmsg.Request
		want string
		ok   bool
	}{
		{&kmsg.InitProducerIDRequest{TransactionalID: &id}, "x", true},
		{&kmsg.InitProducerIDRequest{}, "", false},
		{&kmsg.AddPartitionsToTxnRequest{Version: 3, TransactionalID: "x"}, "x", true},
		{both, "", false},
		{txn.SplitAdd(both)[1], "y", true},
		{&kmsg.AddOffsetsToTxnRequest{TransactionalID: "x"}, "x", true},
		{&kmsg.EndTxnRequest{TransactionalID: "x"}, "x", true},
		{&kmsg.MetadataRequest{}, "", false},
	}
	for _, test := range tests {
		if got, ok := txn.ID(test.req); got != test.want || ok != test.ok {
			t.Errorf("%T: %q, %v", test.req, got, ok)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a request of another kind was handled")
		}
	}()
	newWorld().shard.Handle(&txn.Context{}, &kmsg.MetadataRequest{}, &shard.Effects{})
}

// TestTickTooEarly: a tick before the deadline does nothing.
func TestTickTooEarly(t *testing.T) {
	w := newWorld()
	var fx shard.Effects
	w.shard.Tick(w.nowMs, &fx)
	if len(fx.Records)+len(fx.Replies) > 0 || w.shard.Deadline() != shard.NoDeadline {
		t.Error("an empty shard has something to do")
	}
}

// FuzzReplay: no record crashes a shard, and what it takes in it can run on.
func FuzzReplay(f *testing.F) {
	key := (&kmsg.TxnMetadataKey{TransactionalID: "x"}).AppendTo(nil)
	for state := range kmsg.TransactionState(8) {
		f.Add(key, value(func(v *kmsg.TxnMetadataValue) { v.State = state }))
	}
	f.Add(key, []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		w := newWorld()
		for offset := range kafka.Offset(2) {
			_ = w.shard.Replay(shard.Record{Key: key, Value: value, Offset: offset, TimestampMs: 5})
		}
		for range 10 {
			if w.shard.Deadline() > 1<<60 {
				break
			}
			w.nowMs = max(w.nowMs, w.shard.Deadline())
			w.step(func(fx *shard.Effects) { w.shard.Tick(w.nowMs, fx) })
			for len(w.orders) > 0 {
				order := w.orders[0]
				w.orders = w.orders[1:]
				w.step(func(fx *shard.Effects) { w.shard.MarkersWritten(order, order.Partitions, 0, w.nowMs, fx) })
			}
		}
		f := txn.Filter{}
		w.shard.List(nil, &f, w.nowMs)
	})
}
