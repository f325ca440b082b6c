package metadata_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

// samples has every kind of record with every field in use.
func samples() []metadata.Record {
	id := kafka.TopicID{0xaa, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	partition := metadata.Partition{
		Replicas: []kafka.BrokerID{1, 2, 3}, ISR: []kafka.BrokerID{2, 3}, Leader: 2,
		LeaderEpoch: 300, PartitionEpoch: 7,
	}
	leaderless := metadata.Partition{
		Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: kafka.NoBroker,
	}
	moving := partition
	moving.Adding, moving.Removing = []kafka.BrokerID{1}, []kafka.BrokerID{3}
	moving2 := moving
	moving2.PartitionEpoch++
	eligible := metadata.Partition{
		Replicas: []kafka.BrokerID{1, 2, 3}, ISR: []kafka.BrokerID{1}, Leader: 1, LeaderEpoch: 301, PartitionEpoch: 9,
		Eligible: []kafka.BrokerID{2}, LastEligible: []kafka.BrokerID{3},
	}
	eligible2 := eligible
	eligible2.PartitionEpoch++
	lost := leaderless
	lost.Lost = true
	endpoint := metadata.Endpoint{Name: "PLAINTEXT", Host: "kafka", Port: 9092}
	return []metadata.Record{
		&metadata.ClusterRecord{ClusterID: "MkU3OEVBNTcwNTJENDM2Qg", Level: 1, LastBrokerEpoch: 9},
		&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 9, Incarnation: [16]byte{0xbb, 15: 1}, Directories: [][16]byte{{0xcc, 15: 2}},
			Rack: "r1", Fenced: true, Endpoint: endpoint,
			Endpoints: []metadata.Endpoint{endpoint, {Name: "B", Host: "::1", Port: 65535}},
		}},
		&metadata.TopicCreated{
			Name: "orders", ID: id, Partitions: []metadata.Partition{partition, leaderless},
			Config: map[string]string{"retention.ms": "-1", "cleanup.policy": ""},
		},
		&metadata.PartitionsAdded{ID: id, First: 2, Partitions: []metadata.Partition{leaderless}},
		&metadata.PartitionsChanged{ID: id, Changes: []metadata.PartitionChange{{Index: 1, Partition: partition}}},
		&metadata.LeadersRestarted{Broker: 1},
		&metadata.ConfigChanged{
			Resource: metadata.Resource{Type: metadata.BrokerResource, Name: "1"},
			Set:      map[string]string{"fetch.max.bytes": "2048"}, Remove: []string{"a", "b"},
		},
		&metadata.ProducerIDs{Next: 123_000},
		&metadata.TopicDeleted{ID: id},
		&metadata.LevelRaised{Level: 2},
		&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 10, Fenced: true, ShuttingDown: true, MaxLevel: 2,
			Endpoint: endpoint, Endpoints: []metadata.Endpoint{endpoint},
		}},
		&metadata.BrokerChanged{ID: 1, Epoch: 10, ShuttingDown: true},
		&metadata.TopicCreated{Name: "moving", ID: id, Partitions: []metadata.Partition{moving, lost}},
		&metadata.PartitionsChanged{ID: id, Changes: []metadata.PartitionChange{{Partition: moving2}}},
		&metadata.BrokerRemoved{ID: 1},
		&metadata.TopicCreated{Name: "eligible", ID: id, Partitions: []metadata.Partition{eligible, lost}},
		&metadata.PartitionsChanged{ID: id, Changes: []metadata.PartitionChange{{Partition: eligible2}}},
	}
}

// The bytes of every record are what they were: they are on people's disks.
func TestGoldenRecords(t *testing.T) {
	var b strings.Builder
	for _, r := range samples() {
		fmt.Fprintf(&b, "%T\n%s", r, hex.Dump(metadata.AppendRecords(nil, r)))
	}
	m, _, err := new(metadata.Image).Apply(samples()[:7]...)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "snapshot\n%s", hex.Dump(m.AppendSnapshot(nil)))
	const path = "testdata/records.golden"
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the format changed (-was +is):\n%s", diff)
	}
}

func TestRecordsComeBack(t *testing.T) {
	all := samples()
	data := metadata.AppendRecords([]byte("before"), all...)[len("before"):]
	got, err := metadata.DecodeRecords(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		drawBatches(t, func(_, _ *metadata.Image, _ metadata.Delta, records []metadata.Record) {
			data := metadata.AppendRecords(nil, records...)
			got, err := metadata.DecodeRecords(data)
			if err != nil {
				t.Fatal(err)
			}
			if again := metadata.AppendRecords(nil, got...); !bytes.Equal(again, data) {
				t.Fatalf("written again:\n%x\nwas\n%x", again, data)
			}
		})
	})
}

// Bytes that end early or have one more are refused, by an error that says so.
func TestDamagedRecords(t *testing.T) {
	for _, r := range samples() {
		data := metadata.AppendRecords(nil, r)
		for n := range len(data) {
			got, err := metadata.DecodeRecords(data[:n])
			var format *metadata.FormatError
			if n != 1 && !errors.As(err, &format) { // 1: no record at all.
				t.Fatalf("%T cut at %d: %v, %v", r, n, got, err)
			}
		}
		if _, err := metadata.DecodeRecords(append(data, 0)); err == nil {
			t.Errorf("%T with a byte more is taken", r)
		}
	}
	for name, data := range map[string][]byte{
		"another version":    {2},
		"unknown kind":       {1, 1, 99},
		"a record of a byte": {1, 1, 3},
		"a long length":      {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a padded length":    {1, 0x81, 0x00, 9},
	} {
		if _, err := metadata.DecodeRecords(data); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// Any flipped bit of a snapshot is found.
func TestDamagedSnapshot(t *testing.T) {
	m, _, err := new(metadata.Image).Apply(samples()[:4]...)
	if err != nil {
		t.Fatal(err)
	}
	data := m.AppendSnapshot(nil)
	for i := range data {
		for bit := range 8 {
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << bit
			if _, err := metadata.DecodeSnapshot(damaged); err == nil {
				t.Fatalf("bit %d of byte %d may flip", bit, i)
			}
		}
		if _, err := metadata.DecodeSnapshot(data[:i]); err == nil {
			t.Fatalf("a snapshot of %d bytes is taken", i)
		}
	}
}

// Records that do not fit are refused and leave the image as it was.
func TestRecordsThatDoNotFit(t *testing.T) {
	base, _, err := new(metadata.Image).Apply(samples()[:4]...)
	if err != nil {
		t.Fatal(err)
	}
	before := base.AppendSnapshot(nil)
	topic := base.Topic("orders")
	partition := topic.Partitions[0]
	change := func(edit func(*metadata.PartitionChange)) metadata.Record {
		c := metadata.PartitionChange{Partition: partition}
		c.Partition.PartitionEpoch++
		edit(&c)
		return &metadata.PartitionsChanged{ID: topic.ID, Changes: []metadata.PartitionChange{c}}
	}
	type change1 = metadata.PartitionChange
	for want, r := range map[string]metadata.Record{
		"the cluster has an id already": &metadata.ClusterRecord{ClusterID: "x", Level: 1},
		"there is a topic of that name": &metadata.TopicCreated{Name: "orders", ID: kafka.TopicID{1}},
		"there is a topic of that id":   &metadata.TopicCreated{Name: "o", ID: topic.ID},
		"the name is no topic's":        &metadata.TopicCreated{Name: "a/b", ID: kafka.TopicID{1}},
		"a topic needs an id":           &metadata.TopicCreated{Name: "o", Partitions: topic.Partitions},
		"no topic of that id":           &metadata.TopicDeleted{ID: kafka.TopicID{1}},
		"there is no topic of that id":  &metadata.PartitionsAdded{ID: kafka.TopicID{1}},
		"the topic has 3 partitions":    &metadata.PartitionsAdded{ID: topic.ID, First: 2},
		"there is no partition 9":       change(func(c *change1) { c.Index = 9 }),
		"an epoch of partition 0":       change(func(c *change1) { c.Partition.PartitionEpoch-- }),
		"epoch of partition 0 goes":     change(func(c *change1) { c.Partition.LeaderEpoch-- }),
		"the leader of a partition":     change(func(c *change1) { c.Partition.Leader = 1 }),
		"a partition needs replicas":    change(func(c *change1) { c.Partition.ISR = nil }),
		"broker 4 cannot be in sync":    change(func(c *change1) { c.Partition.ISR = []kafka.BrokerID{2, 4} }),
		"broker 2 holds a partition twice": change(func(c *change1) {
			c.Partition.Replicas = []kafka.BrokerID{2, 2}
		}),
		"there is no topic x": &metadata.ConfigChanged{
			Resource: metadata.Resource{Type: metadata.TopicResource, Name: "x"},
		},
		"nothing of type 8":                 &metadata.ConfigChanged{Resource: metadata.Resource{Type: 8}},
		"producer ids up to":                &metadata.ProducerIDs{Next: -1},
		"a broker needs an id":              &metadata.BrokerRecord{},
		"there is no topic of that id, too": &metadata.PartitionsChanged{},
	} {
		_, _, err := base.Apply(r)
		var replay *metadata.ReplayError
		if !errors.As(err, &replay) || !strings.Contains(err.Error(), strings.TrimSuffix(want, ", too")) {
			t.Errorf("%T: %v, want %s", r, err, want)
		}
	}
	for want, r := range map[string]metadata.Record{
		"it needs level 2": &metadata.BrokerRemoved{ID: 1},
		"it needs level 2 of": &metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, MaxLevel: 2, Endpoints: []metadata.Endpoint{{Host: "h"}},
		}},
		"the cluster uses level 1 already": &metadata.LevelRaised{Level: 1},
		"run a newer version":              &metadata.LevelRaised{Level: metadata.CurrentLevel + 1},
		"it needs level 2 of the": change(func(c *change1) {
			c.Partition.Adding = []kafka.BrokerID{1}
		}),
	} {
		if _, _, err := base.Apply(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("level 1: %T: %v, want %s", r, err, want)
		}
	}
	raised, _, err := base.Apply(&metadata.LevelRaised{Level: 2})
	if err != nil || raised.Level() != 2 {
		t.Fatalf("raised: %v", err)
	}
	for want, r := range map[string]metadata.Record{
		"there is no broker 7":              &metadata.BrokerRemoved{ID: 7},
		"not registered with epoch 1":       &metadata.BrokerChanged{ID: 1, Epoch: 1},
		"broker 7 is not registered":        &metadata.BrokerChanged{ID: 7, Epoch: 9},
		"all replicas of a partition leave": change(func(c *change1) { c.Partition.Removing = partition.Replicas }),
		"has a leader":                      change(func(c *change1) { c.Partition.Lost = true }),
		"broker 9 cannot be on its way in": change(func(c *change1) {
			c.Partition.Adding = []kafka.BrokerID{9}
		}),
		"broker 1 cannot be on its way in": change(func(c *change1) {
			c.Partition.Adding, c.Partition.Removing = []kafka.BrokerID{1}, []kafka.BrokerID{1}
		}),
		"broker 9 cannot be on its way out": change(func(c *change1) {
			c.Partition.Removing = []kafka.BrokerID{9}
		}),
		"a new partition does not move": &metadata.PartitionsAdded{
			ID: topic.ID, First: 3, Partitions: []metadata.Partition{{
				Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1}, Leader: 1, Adding: []kafka.BrokerID{2},
			}},
		},
	} {
		if _, _, err := raised.Apply(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("level 2: %T: %v, want %s", r, err, want)
		}
	}
	newer := &metadata.ClusterRecord{ClusterID: "x", Level: metadata.CurrentLevel + 1}
	if _, _, err := new(metadata.Image).Apply(newer); err == nil || !strings.Contains(err.Error(), "run a newer version") {
		t.Errorf("a newer level: %v", err)
	}
	if !bytes.Equal(base.AppendSnapshot(nil), before) {
		t.Error("a refused record changed the image")
	}
}

func FuzzDecodeRecords(f *testing.F) {
	for _, r := range samples() {
		f.Add(metadata.AppendRecords(nil, r))
	}
	f.Add(metadata.AppendRecords(nil, samples()...))
	full, _, err := new(metadata.Image).Apply(samples()[:7]...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := metadata.DecodeRecords(data)
		if err != nil {
			return
		}
		if again := metadata.AppendRecords(nil, records...); !bytes.Equal(again, data) {
			t.Fatalf("records have two forms:\n%x\n%x", data, again)
		}
		for _, image := range []*metadata.Image{new(metadata.Image), full} {
			before := image.AppendSnapshot(nil)
			next, _, err := image.Apply(records...)
			if !bytes.Equal(image.AppendSnapshot(nil), before) {
				t.Fatal("an image has changed")
			}
			if err != nil {
				continue
			}
			if _, err := metadata.DecodeSnapshot(next.AppendSnapshot(nil)); err != nil {
				t.Fatalf("what the records make has no snapshot: %v", err)
			}
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	m, _, err := new(metadata.Image).Apply(samples()[:7]...)
	if err != nil {
		f.Fatal(err)
	}
	data := m.AppendSnapshot(nil)
	f.Add(data[:len(data)-4])
	f.Add(new(metadata.Image).AppendSnapshot(nil)[:9])
	f.Fuzz(func(t *testing.T, data []byte) {
		// A checksum that fits lets the fuzzer in.
		sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
		image, err := metadata.DecodeSnapshot(binary.BigEndian.AppendUint32(bytes.Clone(data), sum))
		if err != nil {
			return
		}
		snapshot := image.AppendSnapshot(nil)
		again, err := metadata.DecodeSnapshot(snapshot)
		if err != nil {
			t.Fatalf("the snapshot of a decoded image: %v", err)
		}
		if !bytes.Equal(again.AppendSnapshot(nil), snapshot) {
			t.Fatal("an image has two snapshots")
		}
	})
}
