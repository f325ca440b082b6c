package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// newName returns a name for a member of a caller's own.
func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return hex.EncodeToString(b[:])
}

// Commit is a request to commit offsets, each that of the next record to read.
type Commit struct {
	Group, Topic string
	// Member is the one that read what is committed; "" for the one that callers
	// share.
	Member  string
	Offsets []Next
	// In is the transaction that the commit is part of; nil for none.
	In *Transaction
}

// Transaction is a producer's transaction that offsets are committed in: they count
// when it is committed.
type Transaction struct {
	ID            string // The transactional id.
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	// Enter has the group's partition of __consumer_offsets be part of the transaction,
	// and returns what the records of the commit are to come with.
	Enter func(ctx context.Context) (guard any, err error)
}

// Commit commits offsets of a group. With a member they must be of partitions
// that it owns; a group without members takes any.
func (x *Sessions) Commit(ctx context.Context, r Commit) error {
	k, err := keyOf(r.Group, r.Topic, r.Member)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := x.checkOffsets(ctx, r.Topic, r.Offsets); err != nil {
		return err
	}
	if err := x.o.EnsureOffsets(ctx); err != nil {
		return err
	}
	if x.lookUp(k) == nil {
		back, err := x.outside(ctx, k, r.In, r.Offsets)
		if !back {
			return err
		}
		// The group knows the member, this broker has lost its session.
	}
	return x.within(ctx, k, func(s *session) error { return s.commitOwned(ctx, r.In, r.Offsets) })
}

// checkOffsets refuses offsets that are in no log.
func (x *Sessions) checkOffsets(ctx context.Context, topic string, offsets []Next) error {
	if len(offsets) == 0 {
		return refuse(kafka.ErrInvalidRequest, "offsets are needed: partition to the offset of the next record to read")
	}
	v, err := x.resolve(topic)
	if err != nil {
		return err
	}
	parts := make([]int32, len(offsets))
	for i, o := range offsets {
		parts[i] = o.Partition
	}
	found, err := x.locateAll(ctx, v, parts, Place{Kind: AtLatest})
	if err != nil {
		return err
	}
	for i, o := range offsets {
		if end := found[i].highWatermark; o.Offset < 0 || o.Offset > end {
			return refuse(kafka.ErrInvalidRequest, "partition %d: offset %d is not in the log, whose next record will have offset %d",
				o.Partition, o.Offset, end)
		}
	}
	return nil
}

// within runs fn with the session of a key once that is part of its group, and
// again if it loses its generation over it.
func (x *Sessions) within(ctx context.Context, k key, fn func(*session) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := x.enter(ctx, k, nil)
		if err != nil {
			return err
		}
		err = s.whenReady(ctx, fn)
		s.exit()
		switch {
		case errors.Is(err, errEnded):
		case transient(err) && ctx.Err() == nil:
			s.nudge()
			pause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			return rebalancing(k.group)
		default:
			return err
		}
	}
}

// whenReady runs fn as soon as the session is part of its group.
func (s *session) whenReady(ctx context.Context, fn func(*session) error) error {
	c := &call{make(chan struct{}, 1)}
	s.await(c)
	defer s.forgo(c)
	for {
		switch st := s.state(); {
		case st.ready:
			return fn(s)
		case st.retired:
			return st.err
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.home.stopped:
			return stopping()
		}
	}
}

// outside commits for a group that has no members. If the group has some, it
// reports whether the key's member is one of them, or else says why it may not.
func (x *Sessions) outside(ctx context.Context, k key, in *Transaction, offsets []Next) (back bool, err error) {
	err = x.commit(ctx, k, committer{state: state{generation: noGeneration}, in: in}, offsets)
	if err == nil || refusal.CodeOf(err) != kafka.ErrUnknownMemberID {
		return false, err
	}
	d, err := x.describe(k.group)
	if err != nil {
		return false, err
	}
	for i := range d.Members {
		if o, ok := ownerOf(k.group, d.Members[i].InstanceID); ok && o == k {
			return true, nil
		}
	}
	return false, refuse(kafka.ErrNonEmptyGroup, "group %q has %d active members, and %q is none of them: only they may commit for it. "+
		"Send the member that read these records, or stop the others", k.group, len(d.Members), k.member)
}

// commitOwned commits offsets of partitions that the session owns. What is part of a
// transaction is not committed yet, and may never be: the session's place stays.
func (s *session) commitOwned(ctx context.Context, in *Transaction, offsets []Next) error {
	if err := s.lockCommits(ctx); err != nil {
		return err
	}
	defer s.unlockCommits()
	st, err := s.owning(offsets)
	if err != nil {
		return err
	}
	if err := s.home.commit(ctx, s.key, committer{state: st, member: true, in: in}, offsets); err != nil {
		return err
	}
	if in == nil {
		s.noteCommitted(offsets)
	}
	return nil
}

func (s *session) lockCommits(ctx context.Context) error {
	select {
	case s.commits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) unlockCommits() { <-s.commits }

// owning returns the session's state, or a refusal if it does not own all of
// these partitions.
func (s *session) owning(offsets []Next) (state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return state{}, errEnded // Or about to be ready again: ask again.
	}
	for _, o := range offsets {
		if s.holdingLocked(o.Partition) == nil {
			return state{}, &lostError{&kafka.Error{Code: kafka.ErrIllegalGeneration, Message: fmt.Sprintf(
				"partition %d is not member %q's in generation %d of group %q: what it read there goes to another member "+
					"from the last commit on. It owns %v now",
				o.Partition, s.key.member, s.generation, s.key.group, numbers(s.owned),
			)}}
		}
	}
	return state{ready: true, memberID: s.memberID, generation: s.generation}, nil
}

// noteCommitted takes note of a commit. One that is ahead of the session's place
// takes it along: what is below was read, if not through this session.
func (s *session) noteCommitted(offsets []Next) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offsets {
		switch h := s.holdingLocked(o.Partition); {
		case h == nil:
		case o.Offset > h.next:
			h.move(o.Offset)
		default:
			h.committed = o.Offset
		}
	}
}

// commitRead commits what the session has handed out. What it has lost meanwhile
// is no error: it is handed out again by others.
func (s *session) commitRead(ctx context.Context) error {
	if err := s.lockCommits(ctx); err != nil {
		return err
	}
	defer s.unlockCommits()
	s.mu.Lock()
	st := state{memberID: s.memberID, generation: s.generation}
	var offsets []Next
	for _, h := range s.owned {
		if s.ready && h.next != h.committed {
			offsets = append(offsets, Next{h.number, h.next})
		}
	}
	s.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	if err := s.home.commit(ctx, s.key, committer{state: st, member: true}, offsets); err != nil {
		s.nudge()
		return err
	}
	s.noteCommitted(offsets)
	return nil
}

// rewind goes back to what is committed.
func (s *session) rewind(ctx context.Context) error {
	s.mu.Lock()
	generation, assigned := s.generation, numbers(s.owned)
	s.mu.Unlock()
	if len(assigned) == 0 {
		return nil
	}
	committed, err := s.home.committed(ctx, s.key, assigned)
	if err != nil {
		return err
	}
	if err := s.resetMissing(ctx, assigned, committed); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready || s.generation != generation {
		return nil // It begins at what is committed anyway, or keeps what it has.
	}
	for i, number := range assigned {
		h := s.holdingLocked(number)
		if h == nil {
			continue // A group that was begun anew may have the same generation again.
		}
		h.move(committed[i])
	}
	s.wakeAllLocked()
	return nil
}

// move sets the place from outside: reads under way do not count.
func (h *holding) move(to kafka.Offset) {
	h.next, h.committed = to, to
	h.moves++
}

// committer is who commits: a member of a generation, or nobody, maybe in a transaction.
type committer struct {
	state
	member bool
	in     *Transaction
}

// commit commits offsets.
func (x *Sessions) commit(ctx context.Context, k key, as committer, offsets []Next) error {
	if as.in != nil {
		return x.commitInside(ctx, k, as, offsets)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.MemberID = commitVersion, k.group, as.generation, as.memberID
	if as.member {
		instance := k.instanceID()
		req.InstanceID = &instance
	}
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = k.topic
	for _, o := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = o.Partition, int64(o.Offset)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := x.ask(ctx, k, req)
	if err != nil {
		return err
	}
	for _, rt := range resp.(*kmsg.OffsetCommitResponse).Topics {
		for _, rp := range rt.Partitions {
			if err := refused(k.group, rp.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownerIn finds the member that owns a partition by the group's description;
// nil if none does.
func ownerIn(d group.Description, topic string, number int32) *group.MemberDescription {
	for i := range d.Members {
		if slices.Contains(assignedOf(topic, d.Members[i].Assignment), number) {
			return &d.Members[i]
		}
	}
	return nil
}
