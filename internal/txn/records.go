package txn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// The versions of records: keys have one, values are written in the newest, which
// has tagged fields (KIP-915), and read in both.
const (
	keyVersion      int16 = 0
	valueVersion    int16 = 1
	valueVersionMax int16 = 1
)

// lastEpochTag is a tagged field of ours, far from Kafka's, whose brokers and tools
// leave it out: the epoch of whoever may ask for the present one again. Kafka forgets
// it with the coordinator, and then fences a producer whose request to go on was
// answered by a crash.
const lastEpochTag = 10_000

// maxIDBytes is the longest transactional id: what a record's key can hold.
const maxIDBytes = 1<<15 - 1

// DecodeError says that a record's bytes are not what it promises.
type DecodeError struct {
	Part   string // "key" or "value".
	Reason string
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("__transaction_state record: bad %s: %s", e.Part, e.Reason)
}

func appendKey(dst []byte, id string) []byte {
	k := kmsg.TxnMetadataKey{Version: keyVersion, TransactionalID: id}
	return k.AppendTo(dst)
}

func decodeKey(b []byte) (string, error) {
	var k kmsg.TxnMetadataKey
	if len(b) < 2 {
		return "", &DecodeError{"key", "shorter than its version"}
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != keyVersion {
		return "", &DecodeError{"key", fmt.Sprintf("version %d is not %d", v, keyVersion)}
	}
	if err := k.ReadFrom(b); err != nil {
		return "", &DecodeError{"key", err.Error()}
	}
	if k.TransactionalID == "" {
		return "", &DecodeError{"key", "the transactional id is empty"}
	}
	return k.TransactionalID, nil
}

func (m *metadata) appendTo(dst []byte) []byte {
	v := kmsg.TxnMetadataValue{
		Version: valueVersion, ProducerID: int64(m.producerID), ProducerEpoch: int16(m.epoch),
		TimeoutMillis: m.timeoutMs, State: kmsg.TransactionState(m.state),
		LastUpdateTimestamp: m.lastUpdateMs, StartTimestamp: m.startMs,
		PreviousProducerID: int64(m.previousID), NextProducerID: int64(m.nextID),
		ClientTransactionVersion: m.version, NextProducerEpoch: -1,
	}
	if m.state != Empty {
		v.Topics = []kmsg.TxnMetadataValueTopic{}
	}
	for _, p := range m.partitions {
		if n := len(v.Topics); n == 0 || v.Topics[n-1].Topic != p.Topic {
			v.Topics = append(v.Topics, kmsg.TxnMetadataValueTopic{Topic: p.Topic})
		}
		t := &v.Topics[len(v.Topics)-1]
		t.Partitions = append(t.Partitions, p.Partition)
	}
	if m.lastEpoch != noEpoch {
		v.UnknownTags.Set(lastEpochTag, binary.BigEndian.AppendUint16(nil, uint16(m.lastEpoch)))
	}
	return v.AppendTo(dst)
}

// decodeMetadata decodes a value; what it returns does not alias b.
func decodeMetadata(b []byte) (metadata, error) {
	v := kmsg.NewTxnMetadataValue()
	if len(b) < 2 {
		return metadata{}, &DecodeError{"value", "shorter than its version"}
	}
	if n := int16(binary.BigEndian.Uint16(b)); n < 0 || n > valueVersionMax {
		return metadata{}, &DecodeError{
			"value", fmt.Sprintf("version %d is not one of 0 to %d", n, valueVersionMax),
		}
	}
	if err := v.ReadFrom(b); err != nil {
		return metadata{}, &DecodeError{"value", err.Error()}
	}
	m := metadata{
		producerID: kafka.ProducerID(v.ProducerID), previousID: kafka.ProducerID(v.PreviousProducerID),
		nextID: kafka.ProducerID(v.NextProducerID), epoch: kafka.ProducerEpoch(v.ProducerEpoch),
		lastEpoch: noEpoch, timeoutMs: v.TimeoutMillis, state: State(v.State),
		version: v.ClientTransactionVersion, startMs: v.StartTimestamp, lastUpdateMs: v.LastUpdateTimestamp,
	}
	v.UnknownTags.Each(func(tag uint32, val []byte) {
		if tag == lastEpochTag && len(val) == 2 {
			m.lastEpoch = kafka.ProducerEpoch(binary.BigEndian.Uint16(val))
		}
	})
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			m.partitions = append(m.partitions, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	slices.SortFunc(m.partitions, kafka.TopicPartition.Compare)
	m.partitions = slices.Compact(m.partitions)
	return m, m.check()
}

// check returns why a record is none that a coordinator could have written.
func (m *metadata) check() error {
	refuse := func(format string, args ...any) error {
		return &DecodeError{"value", fmt.Sprintf(format, args...)}
	}
	open := m.state == Ongoing || m.state.ending()
	switch {
	case m.state < Empty || m.state > CompleteAbort:
		return refuse("state %d (%s) is not one that is written", m.state, m.state)
	case m.producerID < 0 || m.epoch < 0:
		return refuse("producer id %d, epoch %d", m.producerID, m.epoch)
	case m.nextID != kafka.NoProducerID && (m.nextID < 0 || !m.state.ending()):
		return refuse("next producer id %d in state %s", m.nextID, m.state)
	case m.timeoutMs < 0:
		return refuse("timeout of %d ms", m.timeoutMs)
	case len(m.partitions) > 0 && !open:
		return refuse("partitions in state %s", m.state)
	}
	return nil
}
