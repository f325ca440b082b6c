package httpapi

// What only the leader of a partition knows: where its log begins and ends.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/topics"
)

// askLeadersTimeout bounds what a description waits for other brokers.
const askLeadersTimeout = time.Second

// askLeaders puts what the leaders know of their partitions in the place of what this
// broker does, which may have no replica, or one that is behind. Where a leader does not
// answer in time it stays as it is: a description is most wanted when something fails.
func (s *server) askLeaders(r *http.Request, view *topics.View, partitions []PartitionDescription) {
	if !s.travels(r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askLeadersTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for leader, led := range s.otherLeaders(view) {
		asked.Go(func() { // Ends with ctx; each has partitions of its own.
			theirs, err := s.describedBy(ctx, leader, view.Name)
			if err != nil {
				s.Logger.Debug("a leader does not describe its partitions", "topic", view.Name, "broker", int32(leader),
					"error", err)
				return
			}
			for _, i := range led {
				if int(i) < len(theirs.Partitions) && theirs.ID == view.Meta.ID.String() {
					partitions[i].take(&theirs.Partitions[i])
				}
			}
		})
	}
	asked.Wait()
}

// take takes over what the leader alone knows, if it leads still.
func (d *PartitionDescription) take(of *PartitionDescription) {
	if of.Leader != d.Leader || of.LeaderEpoch != d.LeaderEpoch || of.HighWatermark == nil {
		return
	}
	d.LogStartOffset, d.HighWatermark, d.LogEndOffset, d.SizeBytes =
		of.LogStartOffset, of.HighWatermark, of.LogEndOffset, of.SizeBytes
}

// describedBy is a topic as another broker describes it from what it knows itself.
func (s *server) describedBy(ctx context.Context, by kafka.BrokerID, topic string) (*TopicDescription, error) {
	b, err := s.exchange(ctx, by, &http.Request{
		Method: http.MethodGet, RequestURI: "/v1/topics/" + topic, Host: "broker", Header: http.Header{},
	}, nil)
	if err != nil {
		return nil, err
	}
	d := &TopicDescription{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("read the answer of broker %d: %w", by, err)
	}
	return d, nil
}
