package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
)

// Options make Sessions.
type Options struct {
	// Groups is the group coordinator.
	Groups groups.Runner
	// EnsureOffsets creates __consumer_offsets if it is not there.
	EnsureOffsets func(context.Context) error
	Topics        *topics.Directory
	Now           func() time.Time
	Logger        *slog.Logger

	MaxSessions int // 0 means 1,000.

	// Self is this broker, and Ask the way to the Sessions of others; nil on a
	// broker that is alone.
	Self kafka.BrokerID
	Ask  Ask
}

// defaultMaxSessions is the default of Options.MaxSessions. A session costs a
// goroutine and some kilobytes.
const defaultMaxSessions = 1000

// Shared is the name of the member that callers share who give none.
const Shared = "shared"

// Fresh is the name that asks for a member of the caller's own, whose name is
// then in the answer.
const Fresh = "new"

const (
	// instancePrefix marks the static members that are sessions.
	instancePrefix = "http:"
	// joinPatience is how long a caller waits at least for its session to be part
	// of the group, so that a first call without a wait finds records: members
	// over the Kafka protocol take up to a heartbeat to notice a rebalance.
	joinPatience = 5 * time.Second
	// patience is how long a request about offsets may take in all.
	patience = 10 * time.Second
	// heartbeatEvery is how often sessions look for rebalances; in the same
	// process that costs next to nothing, and others wait for it.
	heartbeatEvery = time.Second
	// rebalanceTimeout is how long others wait for a session in a rebalance.
	rebalanceTimeout = 10 * time.Second
	// retryAfter is how long a session waits after the coordinator could not
	// answer.
	retryAfter = 100 * time.Millisecond
)

// key is what a session is known by.
type key struct{ group, topic, member string }

// instanceID is the group.instance.id of the session. Neither topics nor member
// names have colons.
func (k key) instanceID() string { return instancePrefix + k.topic + ":" + k.member }

// ownerOf reads an instance id; false if it is not a session's.
func ownerOf(groupID string, instanceID *string) (key, bool) {
	if instanceID == nil {
		return key{}, false
	}
	rest, ok := strings.CutPrefix(*instanceID, instancePrefix)
	topic, member, both := strings.Cut(rest, ":")
	return key{groupID, topic, member}, ok && both
}

// Sessions are the consumer sessions of a broker. Its methods may be called from
// any goroutine while Run runs.
type Sessions struct {
	o       Options
	starts  chan *session
	stopped chan struct{}
	scratch sync.Pool // Of *scratch.

	counts counts

	mu  sync.Mutex
	all map[key]*session
}

// New returns Sessions, of which there are none yet.
func New(o Options) *Sessions {
	o.MaxSessions = cmp.Or(o.MaxSessions, defaultMaxSessions)
	return &Sessions{
		o: o, starts: make(chan *session), stopped: make(chan struct{}), all: map[key]*session{},
		scratch: sync.Pool{New: func() any { return &scratch{} }},
	}
}

// Run runs the sessions until ctx ends. They stay members of their groups, so
// that those who come back after a restart find things as they were.
func (x *Sessions) Run(ctx context.Context) error {
	var running errgroup.Group
	defer close(x.stopped)
	for {
		select {
		case <-ctx.Done():
			return running.Wait()
		case s := <-x.starts:
			running.Go(func() error { s.run(ctx); return nil }) // Ends with ctx; waited for above.
		}
	}
}

// Len returns the number of sessions.
func (x *Sessions) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all)
}

// enter returns the session of a key, which is begun if there is none, and
// counts the caller in: exit counts it out. Terms of nil leave those that hold.
func (x *Sessions) enter(ctx context.Context, k key, t *Terms) (*session, error) {
	for {
		topic, err := x.resolve(k.topic)
		if err != nil {
			return nil, err
		}
		s, fresh, err := x.find(k, topic.Meta.ID, t)
		if err != nil {
			return nil, err
		}
		if fresh {
			select {
			case x.starts <- s:
				return s, nil
			case <-x.stopped:
				err = stopping()
			case <-ctx.Done():
				err = ctx.Err()
			}
			x.forget(s)
			s.end(errEnded) // Others may have found it meanwhile.
			close(s.done)
			return nil, err
		}
		if s.topicID == topic.Meta.ID && s.enter(x.o.Now(), t) {
			return s, nil
		}
		s.retire()
		select { // It is on its way out.
		case <-s.done:
		case <-x.stopped:
			return nil, stopping()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// find returns the session of a key, or a fresh one with its caller counted in.
func (x *Sessions) find(k key, id kafka.TopicID, t *Terms) (s *session, fresh bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.all[k]; s != nil {
		return s, false, nil
	}
	if len(x.all) >= x.o.MaxSessions {
		x.counts.refused.Add(1)
		return nil, false, refuse(kafka.ErrThrottlingQuotaExceeded, "there are %d consumer sessions on this broker already, "+
			"which is the most at a time: share a member, or try again when others were unused for their session timeout",
			x.o.MaxSessions)
	}
	s = newSession(x, k, id)
	s.enter(x.o.Now(), t)
	x.all[k] = s
	x.counts.begun.Add(1)
	return s, true, nil
}

// lookUp returns the session of a key if there is one.
func (x *Sessions) lookUp(k key) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[k]
}

// forget takes a session out.
func (x *Sessions) forget(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[s.key] == s {
		delete(x.all, s.key)
	}
}

// ask sends a request to the coordinator of a group and waits for the reply. What it
// tells of the group's offsets is of now.
func (x *Sessions) ask(ctx context.Context, k key, req kmsg.Request) (kmsg.Response, error) {
	if req.Key() == kmsg.OffsetFetch.Int16() {
		return x.askBy(ctx, groups.AskNow, k, req)
	}
	return x.askBy(ctx, groups.Ask, k, req)
}

// asking is one of groups' ways to ask.
type asking func(context.Context, groups.Runner, string, group.Context,
	func(*group.Shard, *group.Context, *shard.Effects)) (any, error)

func (x *Sessions) askBy(ctx context.Context, by asking, k key, req kmsg.Request) (kmsg.Response, error) {
	id, ok := group.GroupID(req)
	if !ok {
		panic(fmt.Sprintf("session: %T is not about one group", req))
	}
	r, err := by(ctx, x.o.Groups, id, x.caller(k),
		func(m *group.Shard, c *group.Context, fx *shard.Effects) { m.Handle(c, req, fx) })
	if err != nil {
		return nil, timedOut(k.group, err)
	}
	return r.(kmsg.Response), nil
}

// caller is how the sessions of a key present themselves to the group's machine.
func (x *Sessions) caller(k key) group.Context {
	return group.Context{
		ClientID: instancePrefix + k.member, ClientHost: "http",
		Topics: groups.Topics{Image: x.o.Topics.Control.Image()},
	}
}

// timedOut says it in words if a coordinator did not answer in time.
func timedOut(group string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return refuse(kafka.ErrRequestTimedOut, "the coordinator of group %q did not answer in time: "+
			"what came of the request is not known, so ask again", group)
	}
	return err
}

// describe returns what the coordinator knows of a group.
func (x *Sessions) describe(id string) (group.Description, error) {
	var d group.Description
	err := x.o.Groups.Do(id, func(m *group.Shard, _ int64, _ *shard.Effects) { d, _ = m.Describe(id) })
	return d, err
}

// resolve finds the topics that callers may read: not those that belong to the
// broker.
func (x *Sessions) resolve(topic string) (*topics.View, error) {
	v, code := x.o.Topics.ByName(topic)
	switch {
	case code != kafka.ErrNone:
		message := topics.Unknown(topic, kafka.TopicID{})
		if near := x.o.Topics.Nearest(topic); near != "" {
			message += ", or did you mean " + near + "?"
		}
		return nil, &kafka.Error{Code: code, Message: message}
	case v.Internal:
		return nil, refuse(kafka.ErrInvalidTopicException, "topic %s is internal: only the broker reads it over HTTP", topic)
	}
	return v, nil
}

// leading returns a partition that this broker leads.
func (x *Sessions) leading(topic string, number int32) (*partition.Partition, error) {
	v, err := x.resolve(topic)
	if err != nil {
		return nil, err
	}
	p := v.Partition(number)
	if p == nil {
		code, message := v.NoPartition(number)
		return nil, &kafka.Error{Code: code, Message: message}
	}
	return p, p.Leads(kafka.NoLeaderEpoch)
}

// count returns the number of partitions of a topic; 0 if there is none.
func (x *Sessions) count(topic string) int32 {
	v, code := x.o.Topics.ByName(topic)
	if code != kafka.ErrNone {
		return 0
	}
	return int32(len(v.Meta.Partitions))
}

// validName reports whether a member may be called so.
func validName(name string) bool {
	const longest = 100
	return name != "" && len(name) <= longest && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}

// numbers returns the partitions of holdings.
func numbers(owned []*holding) []int32 {
	all := make([]int32, len(owned))
	for i, h := range owned {
		all[i] = h.number
	}
	slices.Sort(all)
	return all
}
