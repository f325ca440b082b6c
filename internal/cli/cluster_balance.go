package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/moves"
)

const clusterBalanceLong = `Even out what brokers carry: bytes and replicas by copying partitions from those that
carry most to those that carry least, and leaders by changing which replica leads, which
copies nothing. Replicas keep to as many racks as before, and what is nearly even stays.

A broker that was added gets its share this way; one that is down is left out.

`

type clusterBalance struct {
	*app
	moveFlags
	leaders bool
}

func newClusterBalance(a *app) *cobra.Command {
	b := &clusterBalance{app: a}
	cmd := &cobra.Command{
		Use:   "balance",
		Short: "Even out leaders, replicas and bytes",
		Long:  clusterBalanceLong + moveHelp + movesHelp(),
		Example: `  strandline cluster balance
  strandline cluster balance --leaders --yes`,
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	b.register(cmd.Flags())
	cmd.Flags().BoolVar(&b.leaders, "leaders", false, "even out leaders alone, and copy nothing")
	return cmd
}

func (b *clusterBalance) run(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	return b.onCluster(ctx, func(ctx context.Context, client *kgo.Client, adm *kadm.Client) error {
		s, err := b.survey(ctx, client, adm)
		if err != nil {
			return err
		}
		plan := s.Balance()
		if b.leaders {
			plan = s.Lead()
		}
		r := reportOf(&s.Cluster, plan, nil)
		if len(plan) == 0 {
			return b.even(ctx, s, r, client, adm)
		}
		if err := b.showPlan(r); err != nil {
			return err
		}
		if err := b.agree(b.yes, r.question()); err != nil {
			return b.notAsked(r, err)
		}
		m := &mover{app: b.app, moveFlags: b.moveFlags, client: client, adm: adm, report: r}
		if err := m.carryOut(ctx, s, plan); err != nil {
			return err
		}
		if err := m.prefer(ctx, s.misled()); err != nil {
			return err
		}
		b.out.remark("%s made.", plural(m.done, "move"))
		return b.finish(r)
	})
}

// even ends it where nothing has to move; partitions that somebody else leads than
// they prefer are given back.
func (b *clusterBalance) even(
	ctx context.Context, s *surveyed, r *movesReport, client *kgo.Client, adm *kadm.Client,
) error {
	misled := s.misled()
	if len(misled) > 0 {
		b.out.remark("%s led by another replica than they prefer.", plural(len(misled), "partition"))
		if err := b.agree(b.yes, "Give them back?"); err != nil {
			return b.notAsked(r, err)
		}
		m := &mover{app: b.app, client: client, adm: adm, report: r}
		if err := m.prefer(ctx, misled); err != nil {
			return err
		}
		b.out.remark("%s led by the replica that they prefer again.", plural(len(misled), "partition"))
	}
	r.Done = true
	b.out.remark("Nothing has to move: the brokers carry alike.")
	return b.finish(r)
}

// misled are the partitions that are led by another replica than they prefer, as far
// as that one is there.
func (s *surveyed) misled() (out moves.Plan) {
	up := map[int32]bool{}
	for _, b := range s.brokers {
		up[b.NodeID] = !b.IsFenced
	}
	for _, p := range s.Partitions {
		want := int32(p.Replicas[0])
		if _, moving := s.moving[p.TopicPartition]; !moving && s.led[p.TopicPartition] != want && up[want] {
			out = append(out, moves.Move{TopicPartition: p.TopicPartition, From: p.Replicas, To: p.Replicas})
		}
	}
	return out
}
