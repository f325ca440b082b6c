package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

const clusterDrainLong = `Move all leaders and replicas off brokers, so that they can be stopped for good.

Leaders leave first, which takes a moment each and copies nothing; then replicas are copied
to the other brokers, to those of the same rack first and those that carry least. A
partition that has as many replicas as there are brokers has nowhere to go: it keeps what it
has, but is led elsewhere, unless --fewer lets it have one replica less.

From its yes on, brokers that are drained are cordoned (cordoned.log.dirs): they get no
replicas of new partitions, but where too few other brokers are left, and nothing is moved
there, until they are unregistered, or --undo ends it.

To stop a broker for a short while nothing has to be drained: stop it with SIGTERM, and its
leaders move by themselves.

`

type clusterDrain struct {
	*app
	moveFlags
	fewer, undo bool
}

func newClusterDrain(a *app) *cobra.Command {
	d := &clusterDrain{app: a}
	cmd := &cobra.Command{
		Use:   "drain BROKER…",
		Short: "Move leaders and replicas off brokers",
		Long:  clusterDrainLong + moveHelp + movesHelp(),
		Example: `  strandline cluster drain 3
  strandline cluster drain 3 --yes --throttle 50MiB
  strandline cluster drain 3 --undo`,
		Args:              wantArgs(1, -1, "one or more brokers"),
		ValidArgsFunction: a.completeBrokers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	d.register(cmd.Flags())
	cmd.Flags().BoolVar(&d.fewer, "fewer", false, "let partitions that have nowhere to go have fewer replicas")
	cmd.Flags().BoolVar(&d.undo, "undo", false, "have the brokers take replicas again, and move nothing")
	return cmd
}

// drainRounds bounds how often it is looked whether something is left: topics that
// are created meanwhile may land on the brokers that are drained.
const drainRounds = 10

func (d *clusterDrain) run(ctx context.Context, args []string) error {
	ids, err := parseBrokers(args)
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return err
	}
	return d.onCluster(ctx, func(ctx context.Context, client *kgo.Client, adm *kadm.Client) error {
		var r *movesReport
		for round := range drainRounds {
			s, err := d.survey(ctx, client, adm)
			if err != nil {
				return err
			}
			if err := s.knows(ids); err != nil {
				return err
			}
			if d.undo {
				if err := d.cordon(ctx, client, s, ids, false); err != nil {
					return err
				}
				d.out.remark("%s replicas again: strandline cluster balance gives them a share.", takes(ids))
				return nil
			}
			if err := s.leavesSome(ids); err != nil {
				return err
			}
			plan, stuck := s.Drain(brokerIDsOf(ids), d.fewer)
			lost := s.leaderlessOn(ids)
			stuck = append(stuck, lost...)
			if round == 0 && len(lost) > 0 {
				d.out.warn("%s have no leader to copy them from, and stay: %s. Their records are on brokers that are down: "+
					"start those", plural(len(lost), "partition"), some(namesOf(lost)))
			}
			if len(plan) == 0 && len(s.leaving(ids)) == 0 {
				if r == nil {
					r = reportOf(&s.Cluster, nil, stuck)
					if err := d.agree(d.yes, "Nothing has to move. Give broker "+numbers(ids)+" no more replicas?"); err != nil {
						return d.notAsked(r, err)
					}
					if err := d.cordon(ctx, client, s, ids, true); err != nil {
						return err
					}
				}
				r.Done, r.Stuck = true, namesOf(stuck)
				return d.drained(ctx, client, r, ids)
			}
			next := reportOf(&s.Cluster, plan, stuck)
			if round == 0 {
				r = next
				if err := d.propose(r); err != nil {
					return d.notAsked(r, err)
				}
				if err := d.cordon(ctx, client, s, ids, true); err != nil {
					return err
				}
			}
			m := &mover{app: d.app, moveFlags: d.moveFlags, client: client, adm: adm, report: r}
			if err := m.carryOut(ctx, s, plan); err != nil {
				return err
			}
			if len(r.Failed) > 0 {
				break
			}
		}
		return d.finish(r)
	})
}

// propose shows a plan and asks.
func (d *clusterDrain) propose(r *movesReport) error {
	if len(r.Moves) == 0 {
		d.out.remark("All moves are under way already.")
		return nil
	}
	if err := d.showPlan(r); err != nil {
		return err
	}
	if len(r.Stuck) > 0 {
		d.out.remark("%s stay there, because they have as many replicas as there are brokers left, or no leader: %s. "+
			"For the former add a broker first, or give --fewer.", plural(len(r.Stuck), "partition"), some(r.Stuck))
	}
	return d.agree(d.yes, r.question())
}

// notAsked ends a command whose plan was shown and not wanted.
func (a *app) notAsked(r *movesReport, err error) error {
	if !errors.Is(err, errNotAsked) {
		return err
	}
	if a.out.form == formJSON {
		return a.out.json(r)
	}
	a.out.remark("Nothing was done: --yes carries it out.")
	return nil
}

// drained says what to do next.
func (d *clusterDrain) drained(ctx context.Context, client *kgo.Client, r *movesReport, ids []int32) error {
	if err := d.finish(r); err != nil {
		return err
	}
	who := "Broker " + numbers(ids)
	if len(ids) > 1 {
		who = "Brokers " + numbers(ids)
	}
	if len(r.Stuck) > 0 {
		d.out.remark("%s: nothing is led there any more, but %s stay.", who, plural(len(r.Stuck), "replica"))
		return silent(exitFailed)
	}
	d.out.remark("%s: no leaders and no replicas are left there.", who)
	ctx, cancel := context.WithTimeout(ctx, d.flags.timeout)
	defer cancel()
	q, err := describeQuorum(ctx, client)
	if err != nil {
		return nil // That was a courtesy.
	}
	for _, id := range ids {
		if _, voter := find(q.Voters, id); voter {
			d.out.remark("Broker %d is a voter: strandline cluster remove-voter %d, before it is stopped.", id, id)
		}
	}
	d.out.remark("Then stop it, and have it forgotten: strandline cluster unregister %s", fmt.Sprint(ids[0]))
	return nil
}

// knows refuses brokers that are not there.
func (s *surveyed) knows(ids []int32) error {
	for _, id := range ids {
		if !slices.ContainsFunc(s.Brokers, func(b moves.Broker) bool { return b.ID == kafka.BrokerID(id) }) {
			return failf("there is no broker %d", id).hint("strandline cluster describe shows them.")
		}
	}
	return nil
}

// leavesSome refuses to drain all brokers that are up: nobody would be left to lead what
// they do, and they would be cordoned for nothing.
func (s *surveyed) leavesSome(ids []int32) error {
	for _, b := range s.brokers {
		if !b.IsFenced && !slices.Contains(ids, b.NodeID) {
			return nil
		}
	}
	return failf("no other broker is up to take what broker %s leads and holds", numbers(ids)).
		hint("Start another first, or add one: docs/operations/cluster.md tells how.")
}

// leaderlessOn are the partitions without a leader that have replicas on brokers.
func (s *surveyed) leaderlessOn(ids []int32) (out []kafka.TopicPartition) {
	for _, p := range s.leaderless {
		if slices.ContainsFunc(p.Replicas, func(id kafka.BrokerID) bool { return slices.Contains(ids, int32(id)) }) {
			out = append(out, p.TopicPartition)
		}
	}
	return out
}

// leaving are the partitions on their way off brokers.
func (s *surveyed) leaving(ids []int32) (out []kafka.TopicPartition) {
	for tp, p := range s.moving {
		if s.led[tp] >= 0 && slices.ContainsFunc(p.RemovingReplicas, func(id int32) bool { return slices.Contains(ids, id) }) {
			out = append(out, tp)
		}
	}
	return out
}
