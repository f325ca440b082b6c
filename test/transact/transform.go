package transact

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/test/history"
)

// Group is whose members make records of records.
const Group = "transforms"

// transform has members of the group follow one another.
func (l *Load) transform(ctx context.Context, member int) {
	random := rand.New(rand.NewPCG(uint64(member), 2))
	for life := 0; ctx.Err() == nil; life++ {
		l.member(ctx, member, life, random)
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
	}
}

func (l *Load) member(ctx context.Context, member, life int, random *rand.Rand) {
	id := fmt.Sprint("transform-", member)
	const session, rebalance, heartbeat = 2 * time.Second, 3 * time.Second, 100 * time.Millisecond
	options := append(l.transactional(id, member%2 == 1), kgo.ConsumerGroup(Group), kgo.ConsumeTopics(l.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session), kgo.RebalanceTimeout(rebalance), kgo.HeartbeatInterval(heartbeat))
	cl, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer closing(ctx, cl.Close)()
	s := l.took(ctx, cl.Client(), id)
	if s == nil {
		return
	}
	for n := range 10 + random.IntN(40) {
		if ctx.Err() != nil || !l.step(ctx, cl, s, fmt.Sprintf("%s, life %d, step %d", id, life, n), random) {
			return
		}
	}
}

// step makes records of what is read next, and commits both, or means to abort.
func (l *Load) step(ctx context.Context, cl *kgo.GroupTransactSession, s *history.Session, name string, random *rand.Rand) bool {
	const patience, wait, most = 20 * time.Second, 500 * time.Millisecond, 100
	polling, cancel := context.WithTimeout(ctx, wait)
	fetches := cl.PollRecords(polling, most)
	cancel()
	if fetches.NumRecords() == 0 {
		return true
	}
	ctx, cancel = context.WithTimeout(ctx, patience)
	defer cancel()
	if cl.Begin() != nil {
		return false
	}
	x := s.Begin()
	var failed atomic.Bool
	next := map[int32]int64{}
	for rec := range fetches.RecordsAll() {
		l.History.ReadCommitted(name, placeOf(rec), valueOf(rec))
		next[rec.Partition] = rec.Offset + 1
		if fromOf(rec) != 0 {
			continue
		}
		x.Reads(valueOf(rec))
		v, made := l.record(valueOf(rec), random)
		l.History.Derived(v, valueOf(rec))
		l.produceIn(ctx, cl.Produce, x, v, made, &failed)
	}
	for p, offset := range next {
		x.Offset(Group, p, 0, offset)
	}
	if cl.Client().Flush(ctx) != nil {
		return false
	}
	commit := !failed.Load() && random.IntN(6) != 0
	if commit {
		x.Commits()
	}
	committed, err := cl.End(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err != nil:
		return false // Nobody knows.
	case committed:
		l.ended(x, history.WasCommitted)
	default:
		l.ended(x, history.WasAborted)
	}
	return true
}

// lookUp asks what the group has committed, until ctx ends.
func (l *Load) lookUp(ctx context.Context) {
	cl, done := l.client(ctx, l.options()...)
	defer done()
	for ctx.Err() == nil {
		began := l.History.Mark()
		for p, offset := range l.committedOffsets(ctx, cl) {
			l.History.Fetched(began, Group, p, 0, offset)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// committedOffsets returns what the group has committed, where no transaction is
// about to change that.
func (l *Load) committedOffsets(ctx context.Context, cl *kgo.Client) map[int32]int64 {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = Group
	req.Groups, req.RequireStable = append(req.Groups, g), true
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 {
		return nil
	}
	offsets := map[int32]int64{}
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				offsets[p.Partition] = p.Offset
			}
		}
	}
	return offsets
}
