package httpapi

// Records of a partition that nobody leads, or whose leader cannot be asked: what a
// replica has, up to the last high watermark that it knew. A stale answer says so.

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/relay"
)

// staleField marks an answer that is stale.
const staleField = "Strandline-Stale"

// askStaleField asks another broker for what its replica has.
const askStaleField = relay.FieldPrefix + "Stale"

// stalePatience is how long a request waits for a leader that can be asked, before it
// is answered by somebody else.
const stalePatience = 3 * time.Second

// markStale marks the answer if it is stale.
func (c *reading) markStale(h http.Header) {
	if c.stale {
		h.Set(staleField, "true")
	}
}

// whereabouts finds who leads the partition.
func (c *reading) whereabouts(context.Context) (leadership, error) {
	view, err := c.server.topic(c.single.Topic)
	if err != nil {
		return leadership{}, err
	}
	if int(c.single.Partition) >= len(view.Meta.Partitions) {
		code, message := view.NoPartition(c.single.Partition)
		return leadership{}, &kafka.Error{Code: code, Message: message}
	}
	p := &view.Meta.Partitions[c.single.Partition]
	if p.Leader == kafka.NoBroker {
		return leadership{}, noLeaderError{}
	}
	return leadership{p.Leader, p.LeaderEpoch}, nil
}

// readSomewhere reads one partition at its leader, or else where there is a replica.
func (c *reading) readSomewhere(w http.ResponseWriter, r *http.Request, f form) error {
	s := c.server
	if inside(r) && r.Header.Get(askStaleField) != "" {
		c.readStale()
		return c.answer(w, r, f)
	}
	here := func() error { return c.answer(w, r, f) }
	patience := stalePatience
	if _, err := c.whereabouts(r.Context()); errors.Is(err, noLeaderError{}) {
		patience = 0 // It is gone for longer than it takes to elect another.
	}
	err := s.travel(w, r, journey{find: c.whereabouts, here: here, patience: patience, form: f})
	if err == nil || inside(r) || r.Context().Err() != nil || !moved(err) {
		return err
	}
	if s.Sessions.Replica(c.single.Topic, c.single.Partition) {
		c.readStale()
		return here()
	}
	for _, other := range c.otherReplicas() {
		if s.pass(w, r, &journey{form: f}, other, askStaleField, "1") == nil {
			return nil
		}
	}
	return err
}

// readStale has the next read take what this broker has.
func (c *reading) readStale() { c.stale, c.single.Stale = true, true }

// otherReplicas are the brokers with a replica that can be asked, if there are any.
func (c *reading) otherReplicas() (all []kafka.BrokerID) {
	view, err := c.server.topic(c.single.Topic)
	if err != nil || c.server.Forward == nil {
		return nil
	}
	for _, id := range view.Meta.Partitions[c.single.Partition].Replicas {
		if b, ok := c.server.Control.Image().Broker(id); ok && !b.Fenced && id != c.server.NodeID {
			all = append(all, id)
		}
	}
	return all
}
