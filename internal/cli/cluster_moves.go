package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

// surveyed is a cluster as plans are made from it, with what moves already.
type surveyed struct {
	moves.Cluster
	brokers []kmsg.DescribeClusterResponseBroker
	// moving are the partitions under way.
	moving map[kafka.TopicPartition]kmsg.ListPartitionReassignmentsResponseTopicPartition
	// led is who leads each partition at the moment.
	led map[kafka.TopicPartition]int32
	// leaderless are left out of plans: there is nobody to copy them from.
	leaderless []moves.Partition
	// internal are the topics that the brokers keep for themselves.
	internal map[string]bool
}

// survey asks a cluster for all that plans need. Partitions that move count as being
// where they go.
func (a *app) survey(ctx context.Context, client *kgo.Client, adm *kadm.Client) (*surveyed, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	if err := a.wantController(ctx, client); err != nil {
		return nil, err
	}
	brokers, err := allBrokers(ctx, client)
	if err != nil {
		return nil, err
	}
	// With this wish the client asks anew, instead of saying what it was told before.
	m, err := adm.Metadata(kadm.WithAuthorizedOps(ctx))
	if err != nil {
		return nil, err
	}
	moving, err := reassignments(ctx, client)
	if err != nil {
		return nil, err
	}
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		a.out.warn("some sizes are not known: %s", a.silence(err))
	}
	cordoned, err := cordonedOf(ctx, adm, brokers)
	if err != nil {
		a.out.warn("which brokers are cordoned is not known: %s", a.silence(err))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // A plan that goes by half of it is none.
	}
	s := &surveyed{
		brokers: brokers, moving: moving, led: map[kafka.TopicPartition]int32{}, internal: map[string]bool{},
	}
	for _, b := range brokers {
		rack := ""
		if b.Rack != nil {
			rack = *b.Rack
		}
		s.Brokers = append(s.Brokers, moves.Broker{
			ID: kafka.BrokerID(b.NodeID), Rack: rack, Available: !b.IsFenced && !cordoned[b.NodeID],
		})
	}
	sizes := sizesOf(dirs)
	for _, t := range m.Topics.Sorted() {
		s.internal[t.Topic] = t.IsInternal
		for _, p := range t.Partitions.Sorted() {
			tp := kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			s.led[tp] = p.Leader
			replicas := p.Replicas
			if r, ok := moving[tp]; ok {
				replicas = slices.DeleteFunc(slices.Clone(r.Replicas), func(id int32) bool {
					return slices.Contains(r.RemovingReplicas, id)
				})
			}
			row := moves.Partition{TopicPartition: tp, Replicas: brokerIDsOf(replicas), Bytes: sizes.most(tp)}
			if p.Leader < 0 {
				s.leaderless = append(s.leaderless, row)
			} else {
				s.Partitions = append(s.Partitions, row)
			}
		}
	}
	return s, nil
}

// brokerIDsOf turns ids as clients write them into ours, and idsOfBrokers back.
func brokerIDsOf(ids []int32) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = kafka.BrokerID(id)
	}
	return out
}

func idsOfBrokers(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// reassignments lists all partitions that move.
func reassignments(
	ctx context.Context, client *kgo.Client,
) (map[kafka.TopicPartition]kmsg.ListPartitionReassignmentsResponseTopicPartition, error) {
	resp, err := kmsg.NewPtrListPartitionReassignmentsRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := refused("list partitions that move", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	all := map[kafka.TopicPartition]kmsg.ListPartitionReassignmentsResponseTopicPartition{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p
		}
	}
	return all, nil
}

// replicaSizes are the bytes of each replica, by partition and broker.
type replicaSizes map[kafka.TopicPartition]map[int32]int64

func sizesOf(dirs kadm.DescribedAllLogDirs) replicaSizes {
	all := replicaSizes{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.IsFuture {
				return
			}
			tp := kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			if all[tp] == nil {
				all[tp] = map[int32]int64{}
			}
			all[tp][p.Broker] += p.Size
		})
	})
	return all
}

// most is the size of a partition: one that is being copied has less.
func (s replicaSizes) most(tp kafka.TopicPartition) (bytes int64) {
	for _, n := range s[tp] {
		bytes = max(bytes, n)
	}
	return bytes
}

// movesReport is a plan as --json shows it, and what became of it.
type movesReport struct {
	Moves  []plannedMove `json:"moves"`
	Copied int64         `json:"bytes_to_copy"`
	// Stuck are partitions for which there are too few brokers.
	Stuck  []string       `json:"partitions_without_a_place"`
	Before []brokerBurden `json:"brokers_before"`
	After  []brokerBurden `json:"brokers_after"`
	Done   bool           `json:"carried_out"`
	Failed []string       `json:"failed"` // Moves that were refused.
}

type plannedMove struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"` // The first is to lead.
	Bytes     int64   `json:"bytes_to_copy"`
}

// brokerBurden is what a broker carries.
type brokerBurden struct {
	Broker   int32 `json:"broker"`
	Leaders  int   `json:"leaders"`
	Replicas int   `json:"replicas"`
	Bytes    int64 `json:"bytes"`
}

func reportOf(c *moves.Cluster, plan moves.Plan, stuck []kafka.TopicPartition) *movesReport {
	r := &movesReport{
		Moves: []plannedMove{}, Copied: plan.Copied(), Stuck: namesOf(stuck), Failed: []string{},
		Before: burdens(c), After: burdens(c.After(plan)),
	}
	for i := range plan {
		m := &plan[i]
		r.Moves = append(r.Moves, plannedMove{
			m.Topic, m.Partition, idsOfBrokers(m.From), idsOfBrokers(m.To), m.Copied(),
		})
	}
	return r
}

func namesOf(all []kafka.TopicPartition) []string {
	out := make([]string, len(all))
	for i, tp := range all {
		out[i] = tp.String()
	}
	return out
}

func burdens(c *moves.Cluster) []brokerBurden {
	loads := c.Loads()
	out := []brokerBurden{}
	for _, b := range c.Brokers {
		l := loads[b.ID]
		out = append(out, brokerBurden{int32(b.ID), l.Leaders, l.Replicas, l.Bytes})
	}
	return out
}

// movesHelp documents what commands that move partitions print for scripts.
func movesHelp() string {
	return columnsHelp("topic", "partition", "replicas now", "replicas then, the first to lead", "bytes to copy") +
		"\n" + jsonHelp[movesReport]()
}

// maxPlanShown is how many moves people are shown one by one.
const maxPlanShown = 40

// showPlan shows what is about to be done, but not as JSON: that is one document,
// printed at the end.
func (a *app) showPlan(r *movesReport) error {
	t := newTable("topic", ">partition", "replicas", "then", ">to copy")
	for _, m := range r.Moves {
		t.add(m.Topic, m.Partition, joinIDs(m.From), joinIDs(m.To), sizeCell(m.Bytes))
	}
	switch a.out.form {
	case formJSON:
		return nil
	case formPlain:
		return a.out.show(nil, t)
	}
	hidden := max(0, len(t.rows)-maxPlanShown)
	t.rows = t.rows[:len(t.rows)-hidden]
	t.align(a.out.stdout, a.out.paint)
	if hidden > 0 {
		a.out.printf("... and %s (all of them: --output plain)\n", plural(hidden, "move"))
	}
	b := newTable(">broker", ">leads", ">then", ">replicas", ">then", ">size", ">then")
	for i, now := range r.Before {
		then := r.After[i]
		b.add(now.Broker, now.Leaders, then.Leaders, now.Replicas, then.Replicas, sizeCell(now.Bytes), sizeCell(then.Bytes))
	}
	a.out.printf("\n")
	b.align(a.out.stdout, a.out.paint)
	a.out.printf("\n%s, %s to copy.\n", plural(len(r.Moves), "move"), byteSize(r.Copied))
	return a.out.flush()
}

// question asks whether a plan is to be carried out.
func (r *movesReport) question() string {
	return fmt.Sprintf("Make %s, copying %s?", plural(len(r.Moves), "move"), byteSize(r.Copied))
}

// finish reports what became of a plan.
func (a *app) finish(r *movesReport) error {
	if a.out.form == formJSON {
		if err := a.out.json(r); err != nil {
			return err
		}
	}
	if len(r.Failed) > 0 {
		return failf("%s refused: %s", plural(len(r.Failed), "move"), some(r.Failed)).
			hint("The same command again plans anew from what there is now.")
	}
	return nil
}
