package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const clusterUnregisterLong = `Have brokers forgotten that are stopped for good.

The last step after strandline cluster drain and, for a voter, remove-voter. A broker that
runs, holds replicas or has a vote is not forgotten.

`

type clusterUnregister struct {
	*app
	yes bool
}

func newClusterUnregister(a *app) *cobra.Command {
	c := &clusterUnregister{app: a}
	cmd := &cobra.Command{
		Use:               "unregister BROKER…",
		Short:             "Have brokers forgotten that are stopped for good",
		Long:              clusterUnregisterLong + resultHelp[[]int32]("broker"),
		Args:              wantArgs(1, -1, "one or more brokers"),
		ValidArgsFunction: cobra.NoFileCompletions, // Those that are up are the wrong ones.
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *clusterUnregister) run(ctx context.Context, args []string) error {
	ids, err := parseBrokers(args)
	if err != nil {
		return err
	}
	return c.onCluster(ctx, func(ctx context.Context, client *kgo.Client, _ *kadm.Client) error {
		q, err := c.quorum(ctx, client)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, voter := find(q.Voters, id); voter {
				return failf("broker %d is a voter", id).hint("First: strandline cluster remove-voter %d", id)
			}
		}
		if err := c.confirm(c.yes, "Forget %s?", numbers(ids)); err != nil {
			return err
		}
		t := newTable("broker")
		for _, id := range ids {
			if err := c.forget(ctx, client, id); err != nil {
				return err
			}
			if m, ok := find(q.Learners, id); ok {
				// Else it would be told of what happens for ever.
				if err := c.removeVoter(ctx, client, m); err != nil {
					c.out.warn("%v", err)
				}
			}
			t.add(id)
			c.out.note("Broker %d is forgotten.", id)
		}
		if c.out.form == formTable {
			return nil
		}
		return c.out.show(slices.Clone(ids), t)
	})
}

func (c *clusterUnregister) forget(ctx context.Context, client *kgo.Client, id int32) error {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if resp.ErrorCode == kerr.BrokerIDNotRegistered.Code {
		return failf("there is no broker %d", id)
	}
	return refused(fmt.Sprintf("forget broker %d", id), resp.ErrorCode, resp.ErrorMessage)
}
