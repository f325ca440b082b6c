package session

import (
	"context"
	"errors"

	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// Seek is a request to move a group to a place in one partition, or in all.
type Seek struct {
	Group, Topic string
	Partition    int32 // -1 for all.
	To           Place
}

// Seek moves a group: members that are sessions read on from there, what they
// were reading is dropped, and the place is committed. A place that a member
// over the Kafka protocol owns is that member's own affair: nothing in the
// protocol tells it to move, and its next commit would undo the seek. Then
// nothing is moved. It returns where the group is now.
func (x *Sessions) Seek(ctx context.Context, r Seek) ([]Next, error) {
	if r.Group == "" {
		return nil, refuse(kafka.ErrInvalidRequest, "a group is needed")
	}
	if err := x.o.EnsureOffsets(ctx); err != nil {
		return nil, err
	}
	to, err := x.places(ctx, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := x.seek(ctx, r, to)
		switch {
		case err == nil:
			return to, nil
		case refusal.CodeOf(err) == kafka.ErrRequestTimedOut && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || transient(err)):
			return nil, rebalancing(r.Group)
		case errors.Is(err, errMoved) || transient(err):
			pause(ctx)
		default:
			return nil, err
		}
	}
}

// places finds the offsets to seek to.
func (x *Sessions) places(ctx context.Context, r Seek) ([]Next, error) {
	v, err := x.resolve(r.Topic)
	if err != nil {
		return nil, err
	}
	numbers := []int32{r.Partition}
	if r.Partition < 0 {
		numbers = numbers[:0]
		for i := range x.count(r.Topic) {
			numbers = append(numbers, i)
		}
	}
	found, err := x.locateAll(ctx, v, numbers, r.To)
	if err != nil {
		return nil, err
	}
	to := make([]Next, len(numbers))
	for i, number := range numbers {
		to[i] = Next{number, found[i].at}
	}
	return to, nil
}

// seek finds out whose the partitions are and has each owner move.
func (x *Sessions) seek(ctx context.Context, r Seek, to []Next) error {
	d, err := x.describe(r.Group)
	if err != nil {
		return err
	}
	if len(d.Members) == 0 {
		return x.commit(ctx, key{group: r.Group, topic: r.Topic}, committer{state: state{generation: noGeneration}}, to)
	}
	if d.State != group.Stable {
		return rebalancing(r.Group)
	}
	by := map[key][]Next{}
	for _, o := range to {
		m := ownerIn(d, r.Topic, o.Partition)
		if m == nil {
			return x.unowned(d, r, o)
		}
		k, ok := ownerOf(r.Group, m.InstanceID)
		if !ok {
			return refuse(kafka.ErrNonEmptyGroup, "partition %d belongs to member %s (client %q at %s), which reads by the Kafka protocol: "+
				"only it can move its position. Seek there, or stop it and try again", o.Partition, m.MemberID, m.ClientID, m.ClientHost)
		}
		by[k] = append(by[k], o)
	}
	for k, offsets := range by {
		if err := x.within(ctx, k, func(s *session) error { return s.seekOwned(ctx, offsets) }); err != nil {
			return err
		}
	}
	return nil
}

// unowned says why a partition that no member owns cannot be moved.
func (x *Sessions) unowned(d group.Description, r Seek, o Next) error {
	for i := range d.Members {
		topics, _ := group.SubscribedTopics(d.Members[i].Metadata)
		for _, topic := range topics {
			if topic == r.Topic {
				return rebalancing(r.Group) // It is about to be assigned.
			}
		}
	}
	return refuse(kafka.ErrNonEmptyGroup, "group %q has %d active members, none of which reads topic %s: only a member may commit for a group "+
		"that has some. Consume a record of partition %d first, or stop them", r.Group, len(d.Members), r.Topic, o.Partition)
}

// seekOwned moves the session in partitions that it owns.
func (s *session) seekOwned(ctx context.Context, to []Next) error {
	if err := s.lockCommits(ctx); err != nil {
		return err
	}
	defer s.unlockCommits()
	st, err := s.owning(to)
	if err != nil {
		if lost := (*lostError)(nil); errors.As(err, &lost) {
			return errMoved // Just now: look again.
		}
		return err
	}
	if err := s.home.commit(ctx, s.key, committer{state: st, member: true}, to); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range to {
		// In a later generation the session may have kept its old place.
		if h := s.holdingLocked(o.Partition); h != nil {
			h.move(o.Offset)
		}
	}
	s.wakeAllLocked()
	return nil
}
