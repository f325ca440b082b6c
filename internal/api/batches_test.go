package api_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// batchOf builds a batch of records with these values.
func batchOf(values ...string) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), []byte("k"), []byte(v), nil)
	}
	return append([]byte(nil), b.Build()...)
}

// idempotent builds a batch of an idempotent producer.
func idempotent(id kafka.ProducerID, epoch kafka.ProducerEpoch, sequence int32, values ...string) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(id, epoch, sequence)
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	return append([]byte(nil), b.Build()...)
}

// Places in a batch's header.
const (
	magicAt      = 16
	crcAt        = 17
	attributesAt = 21
	maxStampAt   = 35
	countAt      = 57
)

// edited returns the batch with a change, and a CRC that fits again.
func edited(batch []byte, change func(b []byte)) []byte {
	out := append([]byte(nil), batch...)
	change(out)
	sum := crc32.Checksum(out[attributesAt:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(out[crcAt:], sum)
	return out
}

// produceOf makes a request of one partition.
func produceOf(version int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 30_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, t)
	return req
}

// produced asks and returns the answer about the only partition.
func (c *client) produced(req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return onlyProduced(c.t, c.ask(req))
}

func onlyProduced(t testing.TB, resp kmsg.Response) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	topics := resp.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		t.Fatalf("answer about %+v, want one partition", topics)
	}
	return topics[0].Partitions[0]
}

// fill appends batches of one record and waits until they are acknowledged.
func (w *world) fill(topic string, partition int32, values ...string) {
	w.t.Helper()
	c := w.connect()
	for _, v := range values {
		if p := c.produced(produceOf(9, topic, partition, batchOf(v))); p.ErrorCode != 0 {
			w.t.Fatalf("produce %q to %s-%d: %v %s", v, topic, partition, kafka.Code(p.ErrorCode), text(p.ErrorMessage))
		}
	}
	w.must(c.conn.Close())
}

// valuesIn decodes stored batches and returns the values, joined by spaces.
func valuesIn(t testing.TB, stored []byte) string {
	t.Helper()
	out := ""
	for len(stored) > 0 {
		b, rest, err := record.Next(stored)
		if err != nil {
			t.Fatalf("stored bytes are no batches: %v", err)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		for r, err := range b.Records(1 << 20) {
			if err != nil {
				t.Fatal(err)
			}
			if out != "" {
				out += " "
			}
			out += string(r.Value)
		}
		stored = rest
	}
	return out
}
