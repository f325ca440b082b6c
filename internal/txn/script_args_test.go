package txn_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// args reads a command's arguments.
type args struct{ d *datadriven.TestData }

func (a *args) str(key, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, ",")
		}
	}
	return otherwise
}

func (a *args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a *args) num(key string, otherwise int64) int64 {
	s := a.str(key, "")
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// producer reads ID/EPOCH; -1/-1 if it is not there.
func (a *args) producer(key string) (int64, int16) {
	id, epoch, ok := strings.Cut(a.str(key, ""), "/")
	if !ok {
		return -1, -1
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		panic(err)
	}
	e, err := strconv.ParseInt(epoch, 10, 16)
	if err != nil {
		panic(err)
	}
	return n, int16(e)
}

// partitions reads partitions=(t-0,t-1).
func (a *args) partitions() []kafka.TopicPartition {
	var all []kafka.TopicPartition
	for _, text := range a.list("partitions") {
		i := strings.LastIndexByte(text, '-')
		n, err := strconv.Atoi(text[i+1:])
		if err != nil {
			panic(err)
		}
		all = append(all, kafka.TopicPartition{Topic: text[:i], Partition: int32(n)})
	}
	return all
}

func mustDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func partitionsText(partitions []kafka.TopicPartition) string {
	var b strings.Builder
	for _, p := range partitions {
		b.WriteString(" " + p.String())
	}
	return b.String()
}

// show is a response as the scripts have it.
func show(response kmsg.Response) string {
	code := func(c int16) string { return kafka.Code(c).String() }
	switch r := response.(type) {
	case *kmsg.InitProducerIDResponse:
		return fmt.Sprintf("init %s producer=%d/%d", code(r.ErrorCode), r.ProducerID, r.ProducerEpoch)
	case *kmsg.EndTxnResponse:
		return fmt.Sprintf("end %s producer=%d/%d", code(r.ErrorCode), r.ProducerID, r.ProducerEpoch)
	case *kmsg.AddOffsetsToTxnResponse:
		return "offsets " + code(r.ErrorCode)
	case *kmsg.AddPartitionsToTxnResponse:
		s := "add"
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d=%s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
		for _, one := range r.Transactions {
			for _, t := range one.Topics {
				for _, p := range t.Partitions {
					s += fmt.Sprintf(" %s-%d=%s", t.Topic, p.Partition, code(p.ErrorCode))
				}
			}
		}
		return s
	}
	return fmt.Sprintf("%T", response)
}

func showDescribed(d kmsg.DescribeTransactionsResponseTransactionState) string {
	s := fmt.Sprintf("%s %s %s timeout=%d start=%d producer=%d/%d", kafka.Code(d.ErrorCode), d.TransactionalID,
		d.State, d.TimeoutMillis, d.StartTimestamp, d.ProducerID, d.ProducerEpoch)
	for _, t := range d.Topics {
		s += fmt.Sprintf(" %s%v", t.Topic, t.Partitions)
	}
	return s
}
