package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

// moveFlags are the flags of commands that move partitions.
type moveFlags struct {
	yes      bool
	parallel int
	throttle string
}

func (f *moveFlags) register(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask; without a terminal to ask on, nothing is done without it")
	flags.IntVar(&f.parallel, "parallel", 10, "`number` of partitions that may be copied at the same time")
	flags.StringVar(&f.throttle, "throttle", "", "most `bytes` that each broker may copy in a second, such as 50MiB (default no limit)")
}

func (f *moveFlags) check() error {
	if f.parallel < 1 {
		return usagef("--parallel %d: want at least 1", f.parallel)
	}
	if f.throttle == "" {
		return nil
	}
	_, err := parseBytes("throttle", f.throttle)
	return err
}

// moveHelp is a part of the help of each such command.
const moveHelp = `The plan is shown first. On a terminal it asks then; elsewhere nothing is done without
--yes. Copying goes on in the brokers, whatever becomes of this command: interrupted, it is
carried on by the same command, which plans anew from what there is.

`

// mover carries a plan out.
type mover struct {
	*app
	moveFlags
	client *kgo.Client
	adm    *kadm.Client
	report *movesReport
	// queue are moves that are not asked for yet, and waiting what is copied, ours or
	// begun before.
	queue   moves.Plan
	waiting map[kafka.TopicPartition]int64 // Bytes to copy.
	// total and copied are bytes; done counts moves.
	total, copied int64
	done, moves   int
	quiet         time.Time // When something went on last.
}

const (
	// moverLook is between two looks at what is copied, and moverQuiet how long
	// nothing may go on until it says so.
	moverLook  = 250 * time.Millisecond
	moverQuiet = 30 * time.Second
	// leadersAtOnce bounds the leaders that change in one request.
	leadersAtOnce = 500
)

// carryOut makes the moves of a plan and waits for them and for those under way. In
// the report it notes what was refused.
func (m *mover) carryOut(ctx context.Context, s *surveyed, plan moves.Plan) error {
	defer m.out.progress("")
	m.waiting = map[kafka.TopicPartition]int64{}
	for tp := range s.moving {
		if s.led[tp] >= 0 { // Without a leader nothing is copied.
			m.waiting[tp] = 0
		}
	}
	m.total, m.moves, m.quiet = plan.Copied(), len(plan), m.now()
	undo, err := m.limitRate(ctx, s, plan)
	if err != nil {
		return err
	}
	if err := m.handOver(ctx, plan); err != nil {
		return err
	}
	for i := range plan {
		if len(plan[i].Added()) > 0 || len(plan[i].To) != len(plan[i].From) {
			m.queue = append(m.queue, plan[i])
		} else {
			m.done++
		}
	}
	if err := m.copyAll(ctx); err != nil {
		if ctx.Err() != nil {
			m.out.remark("Interrupted. What is being copied goes on; the same command carries the rest on.")
		}
		return err
	}
	if err := m.prefer(ctx, plan); err != nil {
		return err
	}
	m.report.Done = true
	return undo(ctx)
}

// handOver has leaders change that need no copying: to replicas that are there.
func (m *mover) handOver(ctx context.Context, plan moves.Plan) error {
	var early moves.Plan
	for _, p := range plan {
		if p.From[0] == p.To[0] || !slices.Contains(p.From, p.To[0]) {
			continue
		}
		p.To = append([]kafka.BrokerID{p.To[0]}, slices.DeleteFunc(slices.Clone(p.From), func(id kafka.BrokerID) bool {
			return id == p.To[0]
		})...)
		early = append(early, p)
	}
	for part := range slices.Chunk(early, leadersAtOnce) {
		if err := m.assign(ctx, part); err != nil {
			return err
		}
		if err := m.prefer(ctx, part); err != nil {
			return err
		}
		m.out.progress(fmt.Sprintf("%s change their leader ...", plural(len(early), "partition")))
	}
	return nil
}

// assign asks for moves. What is refused is noted.
func (m *mover) assign(ctx context.Context, plan moves.Plan) error {
	var req kadm.AlterPartitionAssignmentsReq
	for _, p := range plan {
		req.Assign(p.Topic, p.Partition, idsOfBrokers(p.To))
	}
	limited, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	resp, err := m.adm.AlterPartitionAssignments(limited, req)
	if err != nil {
		return err
	}
	for _, r := range resp.Sorted() {
		if r.Err != nil && !errors.Is(r.Err, kerr.UnknownTopicOrPartition) { // Deleted meanwhile.
			f := refusal(fmt.Sprintf("%s-%d", r.Topic, r.Partition), r.Err, r.ErrMessage)
			m.report.Failed = append(m.report.Failed, f.message)
			delete(m.waiting, kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition})
		}
	}
	return nil
}

// prefer has the preferred replicas of a plan's partitions lead, where they can.
func (m *mover) prefer(ctx context.Context, plan moves.Plan) error {
	for part := range slices.Chunk(plan, leadersAtOnce) {
		set := kadm.TopicsSet{}
		for _, p := range part {
			set.Add(p.Topic, p.Partition)
		}
		limited, cancel := context.WithTimeout(ctx, m.flags.timeout)
		// Who is not in sync yet leads later, by itself.
		_, err := m.adm.ElectLeaders(limited, kadm.ElectPreferredReplica, set)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// copyAll asks for the moves that copy, so many at a time, until all are made.
func (m *mover) copyAll(ctx context.Context) error {
	tick := time.NewTicker(moverLook)
	defer tick.Stop()
	for look := 0; ; look++ {
		room := max(0, m.parallel-len(m.waiting))
		if next := m.queue[:min(room, len(m.queue))]; len(next) > 0 {
			m.queue = m.queue[len(next):]
			for _, p := range next {
				m.waiting[p.TopicPartition] = p.Copied()
			}
			if err := m.assign(ctx, next); err != nil {
				return err
			}
		}
		if err := m.look(ctx, look); err != nil {
			return err
		}
		if len(m.waiting)+len(m.queue) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// look finds out which moves have ended, and says how it goes.
func (m *mover) look(ctx context.Context, n int) error {
	limited, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	moving, err := reassignments(limited, m.client)
	switch {
	case err != nil && ctx.Err() == nil && isNetworkError(err):
		return nil // A broker that fails meanwhile is no reason to end.
	case err != nil:
		return err
	}
	for tp, bytes := range m.waiting {
		if _, ok := moving[tp]; !ok {
			delete(m.waiting, tp)
			m.done, m.copied, m.quiet = m.done+1, m.copied+bytes, m.now()
		}
	}
	if m.out.liveTerminal && n%8 == 0 {
		m.out.progress(m.progressLine(ctx))
	}
	if m.now().Sub(m.quiet) > moverQuiet {
		m.quiet = m.now()
		m.out.warn("no move has ended for %v, %s under way: %s. Is a broker down? strandline cluster describe",
			moverQuiet, plural(len(m.waiting), "partition"), some(m.waitingNames()))
	}
	return nil
}

func (m *mover) waitingNames() []string {
	var names []string
	for tp := range m.waiting {
		names = append(names, tp.String())
	}
	slices.Sort(names)
	return names
}

// progressLine counts what is copied of moves under way too.
func (m *mover) progressLine(ctx context.Context) string {
	line := fmt.Sprintf("%d of %s done, %d under way", min(m.done, m.moves), plural(m.moves, "move"), len(m.waiting))
	if m.total > 0 {
		line += fmt.Sprintf(", %s of %s copied", byteSize(min(m.copied+m.partly(ctx), m.total)), byteSize(m.total))
	}
	return line
}

// partly is how much was copied of what moves.
func (m *mover) partly(ctx context.Context) (bytes int64) {
	ctx, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	moving, err := reassignments(ctx, m.client)
	if err != nil {
		return 0
	}
	dirs, _ := m.adm.DescribeAllLogDirs(ctx, nil) // What is not known is not counted.
	sizes := sizesOf(dirs)
	for tp, whole := range m.waiting {
		var got int64
		for _, id := range moving[tp].AddingReplicas {
			got += sizes[tp][id]
		}
		bytes += min(got, whole)
	}
	return bytes
}
