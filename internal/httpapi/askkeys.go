package httpapi

// Whether another broker has the record of an idempotency key: see package keyring,
// which says why it is asked and what follows.

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/topics"
)

// keysPath is where brokers ask one another for keys.
const keysPath = "/internal/keys"

// keysQuestion asks a broker for the records of keys in partitions that it leads.
type keysQuestion struct {
	Topic      string     `json:"topic"` // Its id.
	Partitions []int32    `json:"partitions"`
	Keys       []askedFor `json:"keys"`
}

// askedFor are digests in hexadecimal.
type askedFor struct {
	Key     string `json:"key"`
	Content string `json:"content"`
}

// keysAnswer is the answer, in the order of the keys.
type keysAnswer struct {
	Found []foundKey `json:"found"`
}

// foundKey is what a broker knows of a key.
type foundKey struct {
	Outcome  idempotency.Outcome `json:"outcome"`
	Reserved bool                `json:"reserved,omitempty"`
	Result
	// Error says why a record that is there is not acknowledged.
	Error *Problem `json:"error,omitempty"`
}

// otherLeaders are the other brokers that lead partitions of a topic, nil on a
// broker that is alone.
func (s *server) otherLeaders(topic *topics.View) map[kafka.BrokerID][]int32 {
	if s.Forward == nil {
		return nil
	}
	var by map[kafka.BrokerID][]int32
	for i := range topic.Meta.Partitions {
		leader := topic.Meta.Partitions[i].Leader
		if leader == s.NodeID || leader == kafka.NoBroker {
			continue // Whoever has no leader can't be asked, nor be appended to.
		}
		if by == nil {
			by = map[kafka.BrokerID][]int32{}
		}
		by[leader] = append(by[leader], int32(i))
	}
	return by
}

func (c *produceCall) hasNewKeys() bool {
	for i := range c.records {
		if c.records[i].isNewKey() {
			return true
		}
	}
	return false
}

// newKeys returns the records whose keys are not known here, and their digests.
func (c *produceCall) newKeys() (of []int32, keys []idempotency.Digest) {
	for i := range c.records {
		if r := &c.records[i]; r.isNewKey() {
			of, keys = append(of, int32(i)), append(keys, r.keyDigest)
		}
	}
	return of, keys
}

// readHere has the ring know the keys in all partitions that this broker is to lead: it may lead one
// since a moment ago, when the ring was brought in step with the topic, or only in another moment.
func (c *produceCall) readHere(ctx context.Context, ring *keyring.Ring, now time.Time) error {
	if c.server.Forward == nil {
		return nil // A broker that is alone has led them from its start on.
	}
	return ring.Read(ctx, func(yield func(int32) bool) {
		for i := range c.topic.Meta.Partitions {
			if c.topic.Meta.Partitions[i].Leader == c.server.NodeID && !yield(int32(i)) {
				return
			}
		}
	}, now)
}

// givingWay is how long one of two that append a record of the same key stands back.
const givingWay = 3 * time.Millisecond

// appendAfterAsking appends what other brokers do not have. It is called with the
// ring held and returns with it released. It reports that all has to be looked up
// again.
func (c *produceCall) appendAfterAsking(
	ctx context.Context, ring *keyring.Ring, others map[kafka.BrokerID][]int32, now time.Time,
) (again bool, err error) {
	of, keys := c.newKeys()
	mine, busy := ring.Reserve(keys)
	ring.Release()
	if busy != nil {
		select {
		case <-busy:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	defer mine.GiveUp()
	if c.askAll(ctx, of, others) {
		mine.GiveUp()
		sleep(ctx, givingWay)
		return true, ctx.Err()
	}
	if ring, err = c.server.Keys.Hold(ctx, c.topic, now); err != nil {
		return false, err
	}
	defer ring.Release()
	// The ring was free meanwhile, and this broker may lead more partitions than it did: what is
	// there now counts, not what was.
	unread := c.readHere(ctx, ring, now)
	for _, i := range of {
		r := &c.records[i]
		if !r.isNewKey() {
			continue
		}
		if r.err = unread; r.err != nil {
			continue
		}
		if _, outcome := ring.Check(r.keyDigest, r.content, now); outcome != idempotency.New {
			return true, nil
		}
		r.leaderEpoch, r.err = ring.Ready(ctx, r.partition, now)
	}
	c.appendHeld(ring, now)
	return false, nil
}

// askAll asks others for the records of keys until each has said what it has, and
// notes what is found. It reports that this broker has to give way.
func (c *produceCall) askAll(ctx context.Context, of []int32, others map[kafka.BrokerID][]int32) (giveWay bool) {
	pause := firstPause
	for topic := c.topic; ; {
		missing := c.askOnce(ctx, topic, of, others)
		if missing.giveWay {
			return true
		}
		if missing.ok {
			return false
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
		if ctx.Err() != nil {
			for _, i := range of {
				if r := &c.records[i]; r.isNewKey() {
					r.err = &kafka.Error{Code: kafka.ErrRequestTimedOut, Message: "a broker that may have the record of this " +
						"idempotency key did not say in time: nothing was appended, try again"}
				}
			}
			return false
		}
		if view, err := c.server.topic(c.topic.Name); err == nil && view.Meta.ID == c.topic.Meta.ID {
			topic, c.topic = view, view // Who leads may have changed.
			others = c.server.otherLeaders(topic)
		}
	}
}

// asked is the outcome of asking all others once: all have answered, or one of them
// wants this broker to give way, or neither.
type asked struct{ ok, giveWay bool }

func (c *produceCall) askOnce(
	ctx context.Context, topic *topics.View, of []int32, others map[kafka.BrokerID][]int32,
) (sum asked) {
	sum.ok = true
	open := of[:0:0]
	for _, i := range of {
		if c.records[i].isNewKey() {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return sum
	}
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	for leader, partitions := range others {
		q := keysQuestion{Topic: topic.Meta.ID.String(), Partitions: partitions}
		for _, i := range open {
			r := &c.records[i]
			q.Keys = append(q.Keys, askedFor{hex.EncodeToString(r.keyDigest[:]), hex.EncodeToString(r.content[:])})
		}
		all.Go(func() { // Ends with the answer, and is waited for below.
			answer, err := c.server.askKeys(ctx, leader, &q)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				sum.ok = false
				return
			}
			for k, i := range open {
				if f := &answer.Found[k]; f.Reserved && f.Outcome == idempotency.New {
					sum.ok = false
					sum.giveWay = sum.giveWay || leader < c.server.NodeID
				} else {
					c.noteFound(&c.records[i], f)
				}
			}
		})
	}
	all.Wait()
	return sum
}

// noteFound notes what another broker has of a key.
func (c *produceCall) noteFound(r *produceRecord, f *foundKey) {
	switch {
	case f.Outcome == idempotency.New || !r.isNewKey():
	case f.Outcome == idempotency.Conflict:
		r.err = c.conflict(r, idempotency.Place{Partition: f.Partition, Offset: kafka.Offset(f.Offset)})
	case f.Error != nil:
		r.err = &passedOn{status: http.StatusServiceUnavailable, problem: *f.Error}
	default:
		r.partition, r.offset, r.timestampMs, r.placed = f.Partition, kafka.Offset(f.Offset), f.TimestampMs, true
	}
}

// askKeys asks one broker.
func (s *server) askKeys(ctx context.Context, to kafka.BrokerID, q *keysQuestion) (*keysAnswer, error) {
	b, err := s.askInside(ctx, to, keysPath, appendJSON(nil, q))
	if err != nil {
		return nil, err
	}
	var a keysAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	if len(a.Found) != len(q.Keys) {
		return nil, errors.New("another broker answers for other keys than it was asked for")
	}
	return &a, nil
}

// answerKeys answers another broker.
func (s *server) answerKeys(ctx context.Context, body []byte) ([]byte, error) {
	var q keysQuestion
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&q); err != nil {
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
	wanted := make([]keyring.Wanted, len(q.Keys))
	for i, k := range q.Keys {
		_, err := hex.Decode(wanted[i].Key[:], []byte(k.Key[:min(len(k.Key), 32)]))
		_, err2 := hex.Decode(wanted[i].Content[:], []byte(k.Content[:min(len(k.Content), 32)]))
		if err := errors.Join(err, err2); err != nil {
			return nil, badRequest("%v", err)
		}
	}
	found, err := s.Keys.Find(ctx, view, q.Partitions, wanted, s.Now())
	if err != nil {
		return nil, err
	}
	a := keysAnswer{Found: make([]foundKey, len(found))}
	for i := range found {
		a.Found[i] = s.tellFinding(ctx, view, &found[i])
	}
	return appendJSON(nil, a), nil
}

// tellFinding waits for a record that is there to be as safe as acks=all promises.
func (s *server) tellFinding(ctx context.Context, view *topics.View, f *keyring.Finding) foundKey {
	out := foundKey{Outcome: f.Outcome, Reserved: f.Reserved, Result: Result{
		Partition: f.Place.Partition, Offset: int64(f.Place.Offset),
		Timestamp: seconds(f.Place.TimestampMs), TimestampMs: f.Place.TimestampMs,
	}}
	if f.Outcome != idempotency.Repeated {
		return out
	}
	err := error(&kafka.Error{Code: kafka.ErrNotLeaderOrFollower, Message: "another broker leads the partition: try again"})
	if p := view.Partition(f.Place.Partition); p != nil {
		ctx, cancel := context.WithTimeout(ctx, defaultProduceTimeout)
		defer cancel()
		err = p.Await(ctx, nil, f.LeaderEpoch, f.Place.Offset+1)
	}
	if err != nil {
		_, problem := problemOf(err)
		out.Error = &problem
	}
	return out
}
