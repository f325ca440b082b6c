package fetcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// Ranges read what other replicas have, for a log that was damaged (partition.Peers). They
// fetch as no follower does, so that nothing is acknowledged by it, on ways of their own:
// a leader's loop must not wait for them.
type Ranges struct {
	Self  kafka.BrokerID
	Image func() *metadata.Image
	// To returns the way to a broker.
	To func(kafka.BrokerID) Requester
}

const (
	// rangeBytes is read at once; a larger batch comes alone.
	rangeBytes   = 1 << 20
	rangeTimeout = 10 * time.Second
)

// Replicas implements partition.Peers.
func (r *Ranges) Replicas(p *partition.Partition) []kafka.BrokerID {
	image, id := r.Image(), p.ID()
	mp := image.TopicByID(id.ID).Partition(id.Partition)
	if mp == nil {
		return nil
	}
	var all []kafka.BrokerID
	for _, id := range slices.Concat([]kafka.BrokerID{mp.Leader}, mp.ISR, mp.Replicas) {
		b, known := image.Broker(id)
		if known && !b.Fenced && id != r.Self && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// ReadFrom implements partition.Peers.
func (r *Ranges) ReadFrom(
	ctx context.Context, id kafka.BrokerID, p *partition.Partition, from kafka.Offset,
) ([]record.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, rangeTimeout)
	defer cancel()
	fetched, err := fetch(ctx, r.To(id), rangeRequest(p, from), nil)
	if err != nil {
		return nil, err
	}
	if code := kafka.Code(fetched.ErrorCode); code != kafka.ErrNone {
		return nil, &kafka.Error{Code: code, Message: "a fetch was refused"}
	}
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("a fetch of one partition is answered with %d topics", len(fetched.Topics))
	}
	rp := &fetched.Topics[0].Partitions[0]
	if code := kafka.Code(rp.ErrorCode); code != kafka.ErrNone {
		return nil, &kafka.Error{Code: code, Message: fmt.Sprintf("reading at offset %d", from)}
	}
	return batchesOf(rp.RecordBatches)
}

// rangeRequest asks for what is there, and waits for nothing.
func rangeRequest(p *partition.Partition, from kafka.Offset) *kmsg.FetchRequest {
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.ID().Partition, int64(from), rangeBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = p.Topic(), p.ID().ID, append(t.Partitions, rp)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = int32(kafka.AnyCopy), int32(kafka.AnyCopy)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, rangeBytes
	req.SessionEpoch, req.Topics = -1, append(req.Topics, t)
	return req
}
