package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

const clusterAddLong = `Make brokers voters, that is, ones that elect the active controller, and give the
brokers' own topics as many replicas as the cluster can have now (three at most).

A new broker joins by itself when it is started with --voters naming those that are there.
It holds partitions then, but has no vote, and nothing of what was there before: this
command gives it both. It waits for the broker to be there, for as long as --timeout says.
With --replication-factor all topics that have fewer replicas get as many, and topics made
later too, also if no broker is named; with --balance the new broker gets its share of what is there.

How a single broker grows to three, without losing a record:
  1. Restart it with --cluster-listen and an address that the others reach.
  2. Start the others with --node-id 2 and 3, and --voters 1@HOST:PORT, that address.
  3. strandline cluster add 2 3 --replication-factor 3

`

type clusterAdd struct {
	*app
	moveFlags
	factor  int
	balance bool
	force   bool
}

func newClusterAdd(a *app) *cobra.Command {
	c := &clusterAdd{app: a}
	cmd := &cobra.Command{
		Use:   "add [BROKER…]",
		Short: "Give brokers a vote, and their share of replicas",
		Long:  clusterAddLong + moveHelp + movesHelp(),
		Example: `  strandline cluster add 2 3 --replication-factor 3
  strandline cluster add 4 5 --balance --yes
  strandline cluster add --replication-factor 3`,
		Args:              wantArgs(0, -1, "brokers"),
		ValidArgsFunction: a.completeBrokers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	c.register(cmd.Flags())
	cmd.Flags().IntVarP(&c.factor, "replication-factor", "r", 0, "`number` of replicas for topics that have fewer (default as they are)")
	cmd.Flags().BoolVar(&c.balance, "balance", false, "move replicas to the new brokers, so that all carry alike")
	cmd.Flags().BoolVar(&c.force, "force", false, "accept an even number of voters, or more than five")
	return cmd
}

func (c *clusterAdd) run(ctx context.Context, args []string) error {
	ids, err := parseBrokers(args)
	if err == nil {
		err = c.check()
	}
	if err == nil && (c.factor < 0 || c.factor > 32767) {
		err = usagef("--replication-factor %d: want a number of replicas", c.factor)
	}
	if err == nil && len(ids) == 0 && c.factor == 0 {
		err = usagef("strandline cluster add needs one or more brokers, or --replication-factor").
			hint("See strandline cluster add --help")
	}
	if err != nil {
		return err
	}
	return c.onCluster(ctx, func(ctx context.Context, client *kgo.Client, adm *kadm.Client) error {
		q, added, err := c.await(ctx, client, ids)
		if err != nil {
			return err
		}
		if err := c.checkNumber(len(q.Voters), len(added)); err != nil {
			return err
		}
		s, err := c.survey(ctx, client, adm)
		if err != nil {
			return err
		}
		plan, short := c.plan(s)
		r := reportOf(&s.Cluster, plan, short)
		if err := c.propose(s, q, added, r); err != nil {
			return c.notAsked(r, err)
		}
		for _, m := range added {
			c.out.progress(fmt.Sprintf("broker %d becomes a voter ...", m.ID))
			if err := c.addVoter(ctx, client, m); err != nil {
				c.out.progress("")
				return err
			}
			c.out.progress("")
		}
		if c.factor > 0 {
			c.setDefault(ctx, adm)
		}
		m := &mover{app: c.app, moveFlags: c.moveFlags, client: client, adm: adm, report: r}
		if err := m.carryOut(ctx, s, plan); err != nil {
			return err
		}
		if c.out.form == formTable {
			if err := c.showVoters(ctx, client); err != nil {
				return err
			}
		}
		return c.finish(r)
	})
}

// await waits for brokers to have joined, and returns those that are no voters yet.
func (c *clusterAdd) await(
	ctx context.Context, client *kgo.Client, ids []int32,
) (*describedQuorum, []quorumMember, error) {
	deadline := c.now().Add(c.flags.timeout)
	defer c.out.progress("")
	for {
		q, err := c.quorum(ctx, client)
		if err != nil {
			return nil, nil, err
		}
		var added []quorumMember
		var missing []int32
		for _, id := range ids {
			if v, voter := find(q.Voters, id); voter {
				if q.lost(v) {
					return nil, nil, c.lostVoter(v)
				}
				continue
			}
			if m, ok := find(q.Learners, id); ok && m.directory != [16]byte{} {
				added = append(added, m)
			} else {
				missing = append(missing, id)
			}
		}
		if len(missing) == 0 {
			return q, added, nil
		}
		if c.now().After(deadline) {
			return nil, nil, c.notThere(q, missing)
		}
		c.out.progress(fmt.Sprintf("waiting for %s to join ...", namedBrokers(missing)))
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// lostVoter refuses a broker that has a vote and does not use it: if its disk was replaced, its
// vote is that of a disk that is gone.
func (c *clusterAdd) lostVoter(v quorumMember) error {
	return failf("broker %d is a voter already, and is not heard of", v.ID).
		hint("If it is down, start it: that is all.").
		hint("If it was started with a new disk, it has to be added anew, since what its vote promised is lost: "+
			"strandline cluster remove-voter %d && strandline cluster add %d", v.ID, v.ID)
}

func (c *clusterAdd) notThere(q *describedQuorum, missing []int32) error {
	who := "broker " + numbers(missing) + " has"
	if len(missing) > 1 {
		who = "brokers " + numbers(missing) + " have"
	}
	f := failf("%s not joined", who)
	voters := q.votersFlag()
	if voters == "" {
		return f.hint("This cluster is one broker that does not listen for others: restart it with --cluster-listen " +
			"HOST:PORT, an address that the new ones reach. Its data stays.").
			hint("docs/operations/cluster.md tells the whole way.")
	}
	return f.hint("Start it, with a data directory of its own: strandline start --node-id %d --cluster-listen HOST:PORT "+
		"--voters %s", missing[0], voters)
}

// maxVoters is how many are of use: each decision takes a round among them.
const maxVoters = 5

// checkNumber refuses numbers of voters that bear no more than fewer would.
func (c *clusterAdd) checkNumber(have, more int) error {
	sum := have + more
	switch {
	case c.force || more == 0:
		return nil
	case sum%2 == 0:
		return failf("there would be %d voters: that bears the loss of %d, as %d would, and each decision takes one more",
			sum, (sum-1)/2, sum-1).hint("Add two at a time, so that they are 3 or 5. Brokers serve without a vote too. " +
			"(--force does it all the same.)")
	case sum > maxVoters:
		return failf("there would be %d voters: more than %d make decisions slower and nothing safer", sum, maxVoters).
			hint("Brokers serve without a vote too. (--force does it all the same.)")
	}
	return nil
}

// internalReplicas is how many replicas the brokers' own topics are to have.
const internalReplicas = 3

// plan gives topics replicas, and spreads what there is then.
func (c *clusterAdd) plan(s *surveyed) (moves.Plan, []kafka.TopicPartition) {
	up := 0
	for _, b := range s.Brokers {
		if b.Available {
			up++
		}
	}
	plan, short := s.Replicate(func(topic string) int {
		if s.internal[topic] {
			return min(internalReplicas, up)
		}
		return c.factor
	})
	if c.balance {
		plan = plan.Then(s.After(plan).Balance())
	} else if len(plan) > 0 {
		plan = plan.Then(s.After(plan).Lead())
	}
	return plan, short
}

// propose shows what is about to be done and asks.
func (c *clusterAdd) propose(s *surveyed, q *describedQuorum, added []quorumMember, r *movesReport) error {
	if len(r.Moves) > 0 {
		if err := c.showPlan(r); err != nil {
			return err
		}
	}
	if len(r.Stuck) > 0 {
		c.out.warn("too few brokers for so many replicas of %s", some(r.Stuck))
	}
	voters := slices.Sorted(slices.Values(append(idsOf(q.Voters), idsOf(added)...)))
	if len(added) > 0 {
		c.out.remark("Voters: %s now, then %s. %s", numbers(idsOf(q.Voters)), numbers(voters), voteStrength(len(voters)))
	}
	if lonely := c.lonely(s); lonely > 0 {
		c.out.remark("%s of your topics with one replica, gone with their broker: --replication-factor 3 gives them more.",
			plural(lonely, "partition"))
	}
	if c.factor > 0 {
		c.out.remark("Topics made later have %d replicas (default.replication.factor).", c.factor)
	}
	if len(added) == 0 && len(r.Moves) == 0 && c.factor == 0 {
		c.out.remark("Nothing is to do: they are voters already.")
		return nil
	}
	return c.agree(c.yes, "Do it?")
}

// lonely counts partitions of users' topics with one replica, unless they get more.
func (c *clusterAdd) lonely(s *surveyed) (n int) {
	if c.factor > 1 {
		return 0
	}
	for _, p := range s.Partitions {
		if !s.internal[p.Topic] && len(p.Replicas) == 1 {
			n++
		}
	}
	return n
}

// setDefault has topics that are made later replicated too.
func (c *clusterAdd) setDefault(ctx context.Context, adm *kadm.Client) {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	value := strconv.Itoa(c.factor)
	responses, err := adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "default.replication.factor", Value: &value},
	})
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		c.out.warn("default.replication.factor is not set: %v", err)
	}
}
