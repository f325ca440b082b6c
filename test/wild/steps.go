package wild

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// give notes a producer id and epoch that a broker gave.
func (l *Load) give(id string, got credential, claimed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.given[id]
	known := false
	for _, c := range before {
		known = known || c == got
	}
	if !claimed {
		if known || l.inits[got] {
			l.broken = append(l.broken, fmt.Sprintf("%s: %v was given to a second producer", id, got))
		}
		l.inits[got] = true
	}
	if !known {
		l.given[id] = append(before, got)
	}
}

func (c *client) init(ctx context.Context, id string) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = &id, -1, -1
	req.TransactionTimeoutMillis = 300 + c.random.Int32N(4000)
	claimed := false
	if who, ok := c.who(id); ok && c.random.IntN(2) == 0 {
		req.ProducerID, req.ProducerEpoch, claimed = who.producer, who.epoch, true
	}
	most := c.random.Int32N(6)
	resp, ok := c.coordinated(ctx, id, req, int16(most)).(*kmsg.InitProducerIDResponse)
	if ok && c.told(id, "InitProducerId", resp.ErrorCode) {
		c.give(id, credential{resp.ProducerID, resp.ProducerEpoch}, claimed && most >= 3)
	}
}

func (c *client) addPartitions(ctx context.Context, id string) {
	who, ok := c.who(id)
	if !ok {
		return
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	version, partitions := int16(c.random.IntN(6)), c.somePartitions()
	if version < 4 {
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, who.producer, who.epoch
		req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: c.Topic, Partitions: partitions}}
	} else {
		req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
			TransactionalID: id, ProducerID: who.producer, ProducerEpoch: who.epoch, VerifyOnly: c.random.IntN(2) == 0,
			Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: c.Topic, Partitions: partitions}},
		}}
	}
	resp, ok := c.coordinated(ctx, id, req, version).(*kmsg.AddPartitionsToTxnResponse)
	if !ok {
		return
	}
	code := resp.ErrorCode
	if len(resp.Topics) > 0 {
		code = resp.Topics[0].Partitions[0].ErrorCode
	} else if len(resp.Transactions) > 0 {
		code = resp.Transactions[0].Topics[0].Partitions[0].ErrorCode
	}
	c.told(id, "AddPartitionsToTxn", code)
}

func (c *client) addOffsets(ctx context.Context, id string) {
	who, ok := c.who(id)
	if !ok {
		return
	}
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, who.producer, who.epoch, Group
	if resp, ok := c.coordinated(ctx, id, req, int16(c.random.IntN(5))).(*kmsg.AddOffsetsToTxnResponse); ok {
		c.told(id, "AddOffsetsToTxn", resp.ErrorCode)
	}
}

func (c *client) commitOffsets(ctx context.Context, id string) {
	who, ok := c.who(id)
	if !ok {
		return
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = id, Group, who.producer, who.epoch
	req.Generation = -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = c.Topic
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = c.random.Int32N(c.Partitions), int64(c.value.Add(1))
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, ok := c.coordinated(ctx, Group, req, int16(c.random.IntN(6))).(*kmsg.TxnOffsetCommitResponse)
	if ok && len(resp.Topics) > 0 {
		c.told(Group, "TxnOffsetCommit", resp.Topics[0].Partitions[0].ErrorCode)
	}
}

func (c *client) end(ctx context.Context, id string) {
	who, ok := c.who(id)
	if !ok {
		return
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, who.producer, who.epoch, c.random.IntN(3) > 0
	version := int16(c.random.IntN(6))
	if c.random.IntN(2) == 0 {
		version = 5
	}
	for range 1 + c.random.IntN(2) { // Some ask twice.
		resp, ok := c.coordinated(ctx, id, req, version).(*kmsg.EndTxnResponse)
		if !ok || !c.told(id, "EndTxn", resp.ErrorCode) {
			return
		}
		if version >= 5 {
			c.give(id, credential{resp.ProducerID, resp.ProducerEpoch}, true)
		}
		c.mu.Lock()
		c.ends = append(c.ends, end{id, who, version, req.Commit})
		c.mu.Unlock()
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}
}

// count takes the counter of a producer in a partition, unless another client has it.
func (l *Load) count(at sequenced) *counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.counts[at]
	if n == nil {
		n = &counter{}
		l.counts[at] = n
	}
	if n.busy {
		return nil
	}
	n.busy = true
	return n
}

func (c *client) produce(ctx context.Context, id string) {
	who, ok := c.who(id)
	if !ok {
		return
	}
	at := sequenced{who, c.random.Int32N(c.Partitions)}
	n := c.count(at)
	if n == nil {
		return
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		n.busy = false
	}()
	if n.pending == nil {
		b := c.build(id, at, n.next)
		n.pending = &b
	}
	offset, code, ok := c.send(ctx, *n.pending)
	if !ok {
		return // Nobody knows: it is sent again.
	}
	if c.told("", "Produce", code) {
		c.mu.Lock()
		c.acked[n.pending.value] = place{at.partition, offset}
		c.mu.Unlock()
		n.next++
		n.pending = nil
		return
	}
	const outOfOrder = 45
	if retriable(code) {
		c.leaders = nil
		return
	}
	if code == outOfOrder { // As where an earlier one came late, after it was refused.
		n.next++
	}
	n.pending = nil
}

// retriable reports whether the batch may be in the log all the same, or be taken later.
func retriable(code int16) bool {
	switch kafka.Code(code) {
	case kafka.ErrNotLeaderOrFollower, kafka.ErrNotEnoughReplicas, kafka.ErrNotEnoughReplicasAfterAppend,
		kafka.ErrRequestTimedOut, kafka.ErrKafkaStorageError, kafka.ErrFencedLeaderEpoch, kafka.ErrUnknownTopicOrPartition,
		kafka.ErrConcurrentTransactions, kafka.ErrLeaderNotAvailable:
		return true
	}
	return false
}

func (c *client) build(id string, at sequenced, sequence int32) batch {
	v := c.value.Add(1)
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(kafka.ProducerID(at.producer), kafka.ProducerEpoch(at.epoch), sequence)
	b.SetTransactional()
	b.Append(time.Now().UnixMilli(), nil, binary.BigEndian.AppendUint64(nil, v), nil)
	out := batch{id: id, sequenced: at, sequence: sequence, value: v, bytes: append([]byte(nil), b.Build()...)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[v] = out
	const keep = 400
	if c.late = append(c.late, out); len(c.late) > keep {
		c.late = c.late[1:]
	}
	return out
}

func (c *client) send(ctx context.Context, b batch) (offset int64, code int16, answered bool) {
	broker, ok := c.leader(ctx, b.partition)
	if !ok {
		return 0, 0, false
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 2000, &b.id
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = c.Topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = b.partition, b.bytes
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	version := 3 + c.random.Int32N(10)
	if c.random.IntN(2) == 0 {
		version = 12
	}
	resp, err := c.ask(ctx, broker, req, int16(version))
	if err != nil {
		c.leaders = nil
		return 0, 0, false
	}
	answer := resp.(*kmsg.ProduceResponse)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, 0, false
	}
	got := answer.Topics[0].Partitions[0]
	return got.BaseOffset, got.ErrorCode, true
}

// sendLate delivers once more what was sent before.
func (c *client) sendLate(ctx context.Context, _ string) {
	c.mu.Lock()
	if len(c.late) == 0 {
		c.mu.Unlock()
		return
	}
	b := c.late[c.random.IntN(len(c.late))]
	c.mu.Unlock()
	if _, code, ok := c.send(ctx, b); ok {
		c.told("", "late Produce", code)
	}
}
