package producerstate_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
)

// sealed gives a snapshot a matching checksum.
func sealed(data []byte) []byte {
	binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

// kafkaSnapshot is a snapshot of one producer as Kafka writes it: its own
// version 1 and nothing after the entries.
func kafkaSnapshot() []byte {
	data, err := hex.DecodeString("0001" + "00000000" + "00000001" +
		"0000000000000001" + "0002" + "00000009" + "000000000000006d" + "00000004" +
		"0000000000000457" + "00000003" + "ffffffffffffffff")
	if err != nil {
		panic(err)
	}
	return sealed(data)
}

func TestDecodeKafkaSnapshot(t *testing.T) {
	table, err := producerstate.Decode(kafkaSnapshot(), producerstate.Options{}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	want := producerstate.Entry{
		ProducerID: 1, ProducerEpoch: 2, LastSequence: 9, LastOffset: 109, LastTimestamp: 0x457,
		CoordinatorEpoch: 3, CurrentTxnFirstOffset: -1,
	}
	for got := range table.Active {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("entry (-want +got):\n%s", diff)
		}
	}
	v, err := table.Check(withEpoch(batchOf(5, 5, 0), 2))
	if err != nil || v.BaseOffset != 105 || v.LastOffset != 109 || !v.Duplicate {
		t.Errorf("%+v, %v", v, err)
	}
	if got := table.Expire(5000+99, 100); got != 0 {
		t.Error("it expired before it was silent for long enough")
	}
	if got := table.Expire(5000+100, 100); got != 1 {
		t.Error("it did not expire")
	}
	// The first part of ours is Kafka's, byte for byte, but for the checksum.
	table, err = producerstate.Decode(kafkaSnapshot(), producerstate.Options{}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	ours := table.Encode(nil)
	if diff := cmp.Diff(kafkaSnapshot()[6:], ours[6:len(kafkaSnapshot())]); diff != "" {
		t.Errorf("bytes (-Kafka +ours):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	for i := range int32(3) {
		table.Update(batchOf(i, 1, kafka.Offset(i)), 7)
	}
	good := table.Encode(nil)
	const entryAt, windowAt = 10, 10 + 46 + 4
	tests := []struct {
		name   string
		mutate func([]byte) []byte
	}{
		{"version", func(b []byte) []byte { b[1] = 2; return b }},
		{"negative count", func(b []byte) []byte { b[6] = 0xFF; return b }},
		{"count beyond the bytes", func(b []byte) []byte { b[9] = 7; return b }},
		{"negative producer id", func(b []byte) []byte { b[entryAt] = 0xFF; return b }},
		{"epoch below -1", func(b []byte) []byte { b[entryAt+8] = 0xFF; return b }},
		{"negative sequence", func(b []byte) []byte { b[entryAt+10] = 0xFF; return b }},
		{"offset delta beyond the offset", func(b []byte) []byte { b[entryAt+24] = 1; return b }},
		{"first offset of the transaction", func(b []byte) []byte { b[entryAt+39] = 0; return b }},
		{"window of six", func(b []byte) []byte { b[windowAt+8] = 6; return b }},
		{"window of four", func(b []byte) []byte { b[windowAt+8] = 4; return b }},
		{"window of none", func(b []byte) []byte { b[windowAt+8] = 0; return b }},
		{"window ends elsewhere", func(b []byte) []byte { b[windowAt+8] = 2; return b }},
		{"window out of order", func(b []byte) []byte { b[windowAt+9+15] = 9; return b }},
		{"windows cut off", func(b []byte) []byte { return b[:windowAt+5] }},
		{"window cut off", func(b []byte) []byte { return b[:len(b)-1] }},
		{"no windows at all", func(b []byte) []byte { return b[:windowAt] }},
		{"producer twice", func(b []byte) []byte {
			b = append(b[:56:56], b[10:56]...)
			b[9] = 2
			return b
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := sealed(test.mutate(bytes.Clone(good)))
			_, err := producerstate.Decode(data, producerstate.Options{}, 7)
			if _, ok := errors.AsType[*producerstate.SnapshotError](err); !ok {
				t.Errorf("got %v", err)
			}
		})
	}
	for n := range good {
		if _, err := producerstate.Decode(good[:n], producerstate.Options{}, 7); err == nil {
			t.Errorf("cut off after %d bytes: no error", n)
		}
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[n] ^= 1 << bit
			if _, err := producerstate.Decode(flipped, producerstate.Options{}, 7); err == nil {
				t.Errorf("bit %d of byte %d flipped: no error", bit, n)
			}
		}
	}
}

func TestDecodeBoundsTheTable(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	for id := range kafka.ProducerID(10) {
		a := batchOf(0, 1, kafka.Offset(id))
		a.ProducerID = 9 - id
		table.Update(a, int64(id))
	}
	small, err := producerstate.Decode(table.Encode(nil), producerstate.Options{MaxProducers: 3}, 100)
	if err != nil {
		t.Fatal(err)
	}
	a := batchOf(0, 1, 20)
	a.ProducerID = 20
	small.Update(a, 100)
	if diff := cmp.Diff([]kafka.ProducerID{1, 0, 20}, producerIDs(small)); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
}

// TestSnapshotsDoNotChangeAnything runs random logs and shows that a restart at
// any point, and a truncation to it, lead to the same table as no restart.
func TestSnapshotsDoNotChangeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.Custom(drawAppend), 1, 60).Draw(t, "log")
		at := rapid.IntRange(0, len(log)).Draw(t, "snapshot at")
		straight := producerstate.New(producerstate.Options{MaxProducers: 6})
		var snapshot []byte
		for i, a := range log {
			if i == at {
				snapshot = straight.Encode(nil)
			}
			apply(straight, a, kafka.Offset(i)*10, int64(i))
		}
		if at == len(log) {
			snapshot = straight.Encode(nil)
		}
		restored, err := producerstate.Decode(snapshot, producerstate.Options{MaxProducers: 6},
			math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range log[at:] {
			apply(restored, a, kafka.Offset(at+i)*10, int64(at+i))
		}
		if diff := cmp.Diff(straight.Encode(nil), restored.Encode(nil)); diff != "" {
			t.Fatalf("tables differ:\n%s", diff)
		}
		a, aOK := straight.FirstOpenOffset()
		b, bOK := restored.FirstOpenOffset()
		if a != b || aOK != bOK {
			t.Fatalf("first open offset %d, %v, restored %d, %v", a, aOK, b, bOK)
		}
	})
}

// step is a batch or, if it has no records, a marker.
type step struct {
	producer      kafka.ProducerID
	epoch         kafka.ProducerEpoch
	sequence      int32
	records       int
	transactional bool
}

func drawAppend(t *rapid.T) step {
	return step{
		producer: kafka.ProducerID(rapid.IntRange(0, 9).Draw(t, "producer")),
		epoch:    kafka.ProducerEpoch(rapid.IntRange(0, 2).Draw(t, "epoch")),
		sequence: rapid.OneOf(rapid.Int32Range(0, 20), rapid.Int32Range(math.MaxInt32-5,
			math.MaxInt32)).Draw(t, "sequence"),
		records:       rapid.IntRange(0, 5).Draw(t, "records"),
		transactional: rapid.Bool().Draw(t, "transactional"),
	}
}

func apply(table *producerstate.Table, s step, offset kafka.Offset, nowMs int64) {
	if s.records == 0 {
		table.EndTransaction(producerstate.Marker{
			ProducerID: s.producer, ProducerEpoch: s.epoch,
			CoordinatorEpoch: 1, Timestamp: nowMs,
		}, nowMs)
		return
	}
	a := batchOf(s.sequence, s.records, offset)
	a.ProducerID, a.ProducerEpoch, a.Transactional = s.producer, s.epoch, s.transactional
	table.Update(a, nowMs)
}

// FuzzDecode takes any bytes for a snapshot: nothing panics, and what is
// accepted survives another round.
func FuzzDecode(f *testing.F) {
	table := producerstate.New(producerstate.Options{})
	f.Add(table.Encode(nil), true)
	for i := range int32(9) {
		a := batchOf(i, 1, kafka.Offset(i))
		a.ProducerID, a.Transactional = kafka.ProducerID(i%4), i%2 == 0
		table.Update(a, 7)
	}
	f.Add(table.Encode(nil), true)
	f.Add(kafkaSnapshot(), false)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= 10 {
			sealed(data)
		}
		table, err := producerstate.Decode(data, producerstate.Options{MaxProducers: 1000}, 99)
		if err != nil {
			return
		}
		first := table.Encode(nil)
		again, err := producerstate.Decode(first, producerstate.Options{MaxProducers: 1000}, 99)
		if err != nil {
			t.Fatalf("our own snapshot: %v", err)
		}
		if !bytes.Equal(first, again.Encode(nil)) {
			t.Fatal("another round changed the snapshot")
		}
		for e := range table.Active {
			a := batchOf(0, 1, 1000)
			a.ProducerID, a.ProducerEpoch = e.ProducerID, e.ProducerEpoch
			_, _ = again.Check(a)
			again.Update(a, 100)
		}
		again.Expire(math.MaxInt64, 0)
	})
}

// TestDocumentHasTheMagic holds docs/format/producer-snapshot.md to the code.
func TestDocumentHasTheMagic(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format/producer-snapshot.md")
	if err != nil {
		t.Fatal(err)
	}
	empty := producerstate.New(producerstate.Options{}).Encode(nil)
	magic := "0x" + hex.EncodeToString(empty[len(empty)-4:])
	if !strings.Contains(string(doc), magic) {
		t.Errorf("the document lacks the magic %s", magic)
	}
}
