package httpapi

// Whether a request of a transaction has records where it should have none. A retry that
// comes after partitions were added sends its records to others than the first try did,
// whose leaders know nothing of it. So the leaders of all other partitions are asked, while
// the records are on their way: a yes fails the request for good, and the abort of the
// transaction undoes both tries. A partition without a leader cannot be asked.

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/txn"
)

// sequencesPath is where brokers ask one another what producers have sent.
const sequencesPath = "/internal/sequences"

// sequencesQuestion asks a broker in which of the partitions that it leads a producer's
// last request has a number.
type sequencesQuestion struct {
	Topic         string  `json:"topic"` // Its id.
	Partitions    []int32 `json:"partitions"`
	ProducerID    int64   `json:"producer_id"`
	ProducerEpoch int16   `json:"producer_epoch"`
	Request       int32   `json:"request"`
}

// sequencesAnswer is the answer.
type sequencesAnswer struct {
	Found []int32 `json:"found"`
}

// others returns the partitions that the request has no records for, by leader; none if
// its records would not go elsewhere whatever partitions there are.
func (c *produceCall) others() map[kafka.BrokerID][]int32 {
	mine, chosen := map[int32]bool{}, false
	for i := range c.records {
		mine[c.records[i].partition] = true
		chosen = chosen || c.records[i].chosen
	}
	by := map[kafka.BrokerID][]int32{}
	for i := range c.topic.Meta.Partitions {
		leader := c.topic.Meta.Partitions[i].Leader
		if chosen && !mine[int32(i)] && leader != kafka.NoBroker {
			by[leader] = append(by[leader], int32(i))
		}
	}
	return by
}

// findElsewhere looks at the partitions of a broker that leads all, if it can: those whose
// logs have failed count as without a leader.
func (c *produceCall) findElsewhere(ctx context.Context) error {
	if c.txn == nil || c.inside {
		return nil
	}
	for _, i := range c.others()[c.server.NodeID] {
		found, err := c.server.findRequest(ctx, c.topic, []int32{i}, c.txn.producer, c.txn.request)
		if err == nil && len(found) > 0 {
			return c.txn.elsewhere(c.topic, i)
		}
	}
	return nil
}

// deliverAsking is deliver, with the leaders of all other partitions asked meanwhile.
func (c *produceCall) deliverAsking(r *http.Request, body []byte, release func()) error {
	var by map[kafka.BrokerID][]int32
	if c.txn != nil {
		by = c.others()
	}
	if len(by) == 0 {
		return c.deliver(r, body, release)
	}
	topic, t, told := c.topic, c.txn, make(chan error, 1)
	ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
	defer cancel()
	go func() { told <- c.server.askAllElsewhere(ctx, topic, t, by) }() // Ends with ctx at the latest; waited for below.
	err := c.deliver(r, body, release)
	if err != nil {
		cancel()
	}
	return cmp.Or(err, <-told)
}

// askAllElsewhere asks until each partition's leader has answered.
func (s *server) askAllElsewhere(
	ctx context.Context, topic *topics.View, t *inTransaction, by map[kafka.BrokerID][]int32,
) error {
	pause := firstPause
	for {
		var (
			mu   sync.Mutex
			all  sync.WaitGroup
			open []int32 // Whose leaders did not answer.
			no   error
		)
		for leader, partitions := range by {
			all.Go(func() { // Ends with the answer, and is waited for below.
				found, err := s.askSequences(ctx, leader, topic, partitions, t)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					open = append(open, partitions...)
				case len(found) > 0:
					no = t.elsewhere(topic, found[0])
				}
			})
		}
		all.Wait()
		if no != nil || len(open) == 0 {
			return no
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
		if ctx.Err() != nil {
			return &kafka.Error{Code: kafka.ErrRequestTimedOut, Message: "a broker that may have records of this request did not " +
				"say in time: try again, as the same request"}
		}
		view, err := s.topic(topic.Name)
		if err != nil || view.Meta.ID != topic.Meta.ID {
			return err // It was deleted, and so was whatever is in it.
		}
		by = map[kafka.BrokerID][]int32{}
		for _, i := range open {
			if leader := view.Meta.Partitions[i].Leader; leader != kafka.NoBroker {
				by[leader] = append(by[leader], i)
			}
		}
		if len(by) == 0 {
			return nil
		}
	}
}

// askSequences asks one broker.
func (s *server) askSequences(
	ctx context.Context, leader kafka.BrokerID, topic *topics.View, partitions []int32, t *inTransaction,
) ([]int32, error) {
	if leader == s.NodeID {
		return s.findRequest(ctx, topic, partitions, t.producer, t.request)
	}
	b, err := s.askInside(ctx, leader, sequencesPath, appendJSON(nil, sequencesQuestion{
		Topic: topic.Meta.ID.String(), Partitions: partitions, ProducerID: int64(t.producer.PID),
		ProducerEpoch: int16(t.producer.Epoch), Request: t.request,
	}))
	if err != nil {
		return nil, err
	}
	var a sequencesAnswer
	err = json.Unmarshal(b, &a)
	return a.Found, err
}

// answerSequences answers another broker.
func (s *server) answerSequences(ctx context.Context, body []byte) ([]byte, error) {
	var q sequencesQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, badRequest("%v", err)
	}
	id, err := kafka.ParseTopicID(q.Topic)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	view, code := s.Topics.ByID(id)
	if code != kafka.ErrNone {
		return nil, &kafka.Error{Code: code, Message: topics.Unknown("", id)}
	}
	producer := txn.Producer{PID: kafka.ProducerID(q.ProducerID), Epoch: kafka.ProducerEpoch(q.ProducerEpoch)}
	found, err := s.findRequest(ctx, view, q.Partitions, producer, q.Request)
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, sequencesAnswer{found}), nil
}

// findRequest returns those of the partitions in which the producer's last request has
// that number. All of them must be led here.
func (s *server) findRequest(
	ctx context.Context, topic *topics.View, partitions []int32, by txn.Producer, request int32,
) (found []int32, err error) {
	for _, i := range partitions {
		if int(i) < 0 || int(i) >= len(topic.Meta.Partitions) {
			return nil, noLeaderError{} // Which this broker has not heard of yet.
		}
		s.awaitOpen(ctx, topic, i)
		p := topic.Partition(i)
		if p == nil {
			return nil, &kafka.Error{Code: kafka.ErrNotLeaderOrFollower, Message: "another broker leads the partition: try again"}
		}
		last, ok, err := p.LastSequence(by.PID, by.Epoch)
		if err != nil {
			return nil, err
		}
		if ok && last/requestSequences == request {
			found = append(found, i)
		}
	}
	slices.Sort(found)
	return found, nil
}

// elsewhere refuses a request that has records in a partition where it should have none.
func (t *inTransaction) elsewhere(topic *topics.View, partition int32) error {
	return refuse(http.StatusConflict, kafka.ErrOutOfOrderSequenceNumber,
		"request %d was sent before and has records in %s-%d, where its records do not belong now: it had other records then, or "+
			"the topic other partitions. Abort the transaction, and begin another", t.request, topic.Name, partition)
}
