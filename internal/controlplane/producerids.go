package controlplane

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// producerIDs is the block of producer ids that this broker has. What is left of
// it when the broker stops is never used.
type producerIDs struct {
	// held is a lock that can be waited for with a context: the next block may take
	// a while.
	held      chan struct{}
	next, end int64
}

func newProducerIDs() producerIDs { return producerIDs{held: make(chan struct{}, 1)} }

// NextProducerID returns a producer id that was never given out before.
func (c *ControlPlane) NextProducerID(ctx context.Context) (kafka.ProducerID, error) {
	ids := &c.ids
	select {
	case ids.held <- struct{}{}:
		defer func() { <-ids.held }()
	case <-ctx.Done():
		return kafka.NoProducerID, ctx.Err()
	}
	if ids.next == ids.end {
		start, length, err := c.allocateProducerIDs(ctx)
		if err != nil {
			return kafka.NoProducerID, err
		}
		ids.next, ids.end = start, start+length
	}
	ids.next++
	return kafka.ProducerID(ids.next - 1), nil
}

func (c *ControlPlane) allocateProducerIDs(ctx context.Context) (start, length int64, err error) {
	b, _ := c.Image().Broker(c.controller.Self)
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(c.controller.Self), int64(b.Epoch)
	resp, err := ask(ctx, c, c.allocation(), req)
	if err != nil {
		return 0, 0, err
	}
	if code := kafka.Code(resp.ErrorCode); code != kafka.ErrNone {
		return 0, 0, &kafka.Error{Code: code, Message: "no producer ids were given out: try again"}
	}
	return resp.ProducerIDStart, int64(resp.ProducerIDLen), nil
}
