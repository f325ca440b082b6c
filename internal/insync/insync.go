// Package insync asks the controller for the changes of in-sync replica sets (ISRs)
// that the leaders on this broker want, and tells the leaders what became of them.
//
// It assumes that package isr says what is wanted, and that the controller compares
// and sets (KIP-497). One request is under way at a time; what is wanted meanwhile
// goes into the next, so that a follower that leaves or joins a thousand partitions
// costs a few requests.
//
// Invariants:
//
//	what is sent is what the leader wants at that moment, under its present epochs
//	a leader is told of a change only by the controller's word: granted, or
//	refused for sure; an answer that is lost, or that says that somebody else was
//	faster, leaves the change wanted, and counted in the maximal ISR, until the
//	metadata or a later answer settles it
//
// Failing cases that this is for: the answer is lost and the change was granted; the
// controller moves while the request is under way; the metadata overtakes the answer;
// a refused follower fetches on and is not to be asked for with each fetch.
//
// Want may be called from any goroutine, and never blocks. Without led
// partitions that others follow, Run waits and does nothing. Deliberately absent: any
// judgement of who is in sync.
package insync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// Controller is the way to the active controller.
type Controller interface {
	AlterPartition(context.Context, *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
}

// Options make Changes.
type Options struct {
	Self kafka.BrokerID
	// BrokerEpoch returns the epoch of this broker's registration now.
	BrokerEpoch func() kafka.BrokerEpoch
	Controller  Controller
	Partitions  *partition.Table
	// MaxLag is replica.lag.time.max.ms as it is now.
	MaxLag func() time.Duration
	// Unheard says for how long followers have had no connection to this broker; nil where
	// they are reached in other ways.
	Unheard isr.Unheard
	Now     func() time.Time
	Logger  *slog.Logger
}

// The limits of a request.
const (
	requestTimeout = 5 * time.Second
	firstBackoff   = 20 * time.Millisecond
	lastBackoff    = time.Second
	// refusedFor is how long a follower that was refused is not asked for again.
	refusedFor = time.Second
	// severedCheck is how often partitions that wait for a follower are looked at.
	severedCheck = 250 * time.Millisecond
)

// Changes gathers and sends what leaders want.
type Changes struct {
	o    Options
	wake chan struct{} // Has room for one.

	mu     sync.Mutex
	wanted map[*partition.Partition]struct{}
	// checking says that some partition here may have followers.
	checking bool
}

// New returns Changes that send nothing before Run.
func New(o Options) *Changes {
	if o.Unheard == nil {
		o.Unheard = func(kafka.BrokerID) time.Duration { return 0 }
	}
	return &Changes{o: o, wake: make(chan struct{}, 1), wanted: map[*partition.Partition]struct{}{}}
}

// Want notes that a partition led here wants another ISR, or may do so from now on:
// it has followers, which may fall behind.
func (c *Changes) Want(p *partition.Partition) {
	c.mu.Lock()
	c.wanted[p], c.checking = struct{}{}, true
	c.mu.Unlock()
	c.poke()
}

func (c *Changes) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run sends what is wanted, and looks for followers that have fallen behind, until
// ctx ends.
func (c *Changes) Run(ctx context.Context) error {
	backoff := time.Duration(0)
	var check, all time.Time // When to look at the followers next, and at all of them.
	for {
		timer := time.NewTimer(c.pause(&check, backoff))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
		if now := c.o.Now(); !check.IsZero() && !now.Before(check) {
			check = time.Time{}
			every := !now.Before(all)
			if every {
				all = now.Add(c.o.MaxLag() / 2)
			}
			c.checkLag(now, every)
		}
		if err := c.send(ctx); err != nil && ctx.Err() == nil {
			if backoff == firstBackoff { // Once is no news, and one line is enough.
				c.o.Logger.Warn("a change of in-sync replicas is not settled; asking again", "error", err)
			}
			backoff = min(max(2*backoff, firstBackoff), lastBackoff)
			c.wait(ctx, backoff)
		} else {
			backoff = 0
		}
	}
}

// forEver is a wait that nothing but a wake ends.
const forEver = time.Duration(1<<63 - 1)

// pause returns how long there is nothing to do unless somebody asks. check is set to
// when the followers are due.
func (c *Changes) pause(check *time.Time, backoff time.Duration) time.Duration {
	c.mu.Lock()
	checking, waiting := c.checking, len(c.wanted) > 0
	c.mu.Unlock()
	if !checking {
		*check = time.Time{}
	} else if check.IsZero() {
		*check = c.o.Now().Add(min(c.o.MaxLag()/2, severedCheck))
	}
	pause := forEver
	if waiting {
		pause = backoff
	}
	if checking {
		pause = min(pause, max(0, check.Sub(c.o.Now())))
	}
	return pause
}

// wait waits for d, or for ctx to end.
func (c *Changes) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// checkLag looks for followers that have fallen behind, at all partitions or at those that
// may wait for one. When nothing here has followers any more it is not done again before
// Want.
func (c *Changes) checkLag(now time.Time, all bool) {
	if all {
		c.mu.Lock()
		c.checking = false // Want may set it again meanwhile.
		c.mu.Unlock()
	}
	followed := false
	c.o.Partitions.All(func(p *partition.Partition) bool {
		if all || p.Lacks() {
			followed = p.CheckLag(now, c.o.Unheard) || followed
		}
		return true
	})
	if followed {
		c.mu.Lock()
		c.checking = true
		c.mu.Unlock()
	}
}

// asked is a partition whose change is in a request.
type asked struct {
	p    *partition.Partition
	want partition.WantedISR
}

// send asks for all that is wanted now. What is not settled by the answer stays
// wanted; then there is an error.
func (c *Changes) send(ctx context.Context) error {
	c.mu.Lock()
	partitions := slices.Collect(maps.Keys(c.wanted))
	clear(c.wanted)
	c.mu.Unlock()
	var all []asked
	for _, p := range partitions {
		if want, ok := p.WantedISR(); ok {
			all = append(all, asked{p, want})
		}
	}
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.o.Controller.AlterPartition(ctx, c.request(all))
	if err == nil && resp.ErrorCode != 0 {
		err = &kafka.Error{Code: kafka.Code(resp.ErrorCode), Message: "the controller refused to change in-sync replicas"}
	}
	if err != nil {
		c.again(all)
		return fmt.Errorf("change in-sync replicas of %d partitions: %w", len(all), err)
	}
	return c.take(all, resp)
}

// again makes changes wanted once more.
func (c *Changes) again(all []asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range all {
		c.wanted[a.p] = struct{}{}
	}
}

// request names every change with the epochs it is compared with.
func (c *Changes) request(all []asked) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version = req.MaxVersion()
	self := c.o.BrokerEpoch()
	req.BrokerID, req.BrokerEpoch = int32(c.o.Self), int64(self)
	topics := map[kafka.TopicID]int{}
	for _, a := range all {
		id := a.p.ID()
		i, ok := topics[id.ID]
		if !ok {
			i = len(req.Topics)
			topics[id.ID] = i
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID, t.Topic = id.ID, a.p.Topic()
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewAlterPartitionRequestTopicPartition()
		rp.Partition, rp.LeaderEpoch = id.Partition, int32(a.want.LeaderEpoch)
		rp.PartitionEpoch = int32(a.want.PartitionEpoch)
		for _, m := range a.want.ISR {
			rp.NewISR = append(rp.NewISR, int32(m.ID))
			member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			member.BrokerID, member.BrokerEpoch = int32(m.ID), int64(m.BrokerEpoch)
			if m.ID == c.o.Self {
				member.BrokerEpoch = int64(self)
			}
			rp.NewEpochISR = append(rp.NewEpochISR, member)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	return req
}

// errUnsettled says that an answer left changes open.
var errUnsettled = errors.New("the controller did not settle it")

// take tells the leaders what the controller answered.
func (c *Changes) take(all []asked, resp *kmsg.AlterPartitionResponse) error {
	type key struct {
		id        kafka.TopicID
		partition int32
	}
	answers := map[key]*kmsg.AlterPartitionResponseTopicPartition{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			answers[key{t.TopidID, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	var open []asked
	for _, a := range all {
		id := a.p.ID()
		answer := answers[key{id.ID, id.Partition}]
		if answer == nil || !c.settle(a, answer) {
			open = append(open, a)
		}
	}
	if len(open) == 0 {
		return nil
	}
	c.again(open)
	return fmt.Errorf("%d partitions, %s-%d first: %w", len(open), open[0].p.Topic(), open[0].p.ID().Partition, errUnsettled)
}

// settle tells a leader the controller's word; false if there is none for sure.
func (c *Changes) settle(a asked, answer *kmsg.AlterPartitionResponseTopicPartition) bool {
	switch code := kafka.Code(answer.ErrorCode); code {
	case kafka.ErrNone:
		members := make([]kafka.BrokerID, len(answer.ISR))
		for i, id := range answer.ISR {
			members[i] = kafka.BrokerID(id)
		}
		a.p.ISRCommitted(a.want.LeaderEpoch, members, kafka.PartitionEpoch(answer.PartitionEpoch))
		c.o.Logger.Info("in-sync replicas changed", "topic", a.p.Topic(), "partition", a.p.ID().Partition,
			"isr", members, "leader_epoch", a.want.LeaderEpoch)
		return true
	case kafka.ErrNewLeaderElected:
		return true // It was made, and more: the metadata tells.
	case kafka.ErrIneligibleReplica, kafka.ErrOperationNotAttempted:
		a.p.ISRRefused(a.want, c.o.Now().Add(refusedFor))
		c.o.Logger.Info("in-sync replicas not changed", "topic", a.p.Topic(), "partition", a.p.ID().Partition,
			"wanted", ids(a.want.ISR), "code", code.String())
		return true
	}
	// Somebody was faster, and the metadata is on its way; or it will be asked again.
	return false
}

func ids(members []isr.Member) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(members))
	for i, m := range members {
		out[i] = m.ID
	}
	return out
}
