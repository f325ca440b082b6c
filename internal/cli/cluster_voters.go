package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const clusterRemoveVoterLong = `Take brokers out of those that elect the active controller.

They go on as brokers: what they lead and hold stays. Do it before such a broker is
stopped for good (after strandline cluster drain), and for one that is lost with its disk:
what it had promised to hold is gone, so it is not let in again under its old vote. It
works as long as a majority of the voters is there.

`

type clusterRemoveVoter struct {
	*app
	yes bool
}

// changedVoters is what commands that change voters report.
type changedVoters struct {
	Voters   []int32 `json:"voters"`
	Learners []int32 `json:"learners"`
}

func newClusterRemoveVoter(a *app) *cobra.Command {
	c := &clusterRemoveVoter{app: a}
	cmd := &cobra.Command{
		Use:   "remove-voter BROKER…",
		Short: "Take brokers out of those that elect the controller",
		Long: clusterRemoveVoterLong + columnsHelp("voters that are left", "learners") + "\n" +
			jsonHelp[changedVoters](),
		Args:              wantArgs(1, -1, "one or more brokers"),
		ValidArgsFunction: a.completeBrokers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *clusterRemoveVoter) run(ctx context.Context, args []string) error {
	ids, err := parseBrokers(args)
	if err != nil {
		return err
	}
	return c.onCluster(ctx, func(ctx context.Context, client *kgo.Client, _ *kadm.Client) error {
		q, err := c.quorum(ctx, client)
		if err != nil {
			return err
		}
		var leaving []quorumMember
		for _, id := range ids {
			m, ok := find(q.Voters, id)
			if !ok {
				return failf("broker %d is no voter: voters are %s", id, numbers(idsOf(q.Voters)))
			}
			leaving = append(leaving, m)
		}
		left := len(q.Voters) - len(leaving)
		if left < 1 {
			return failf("no voter would be left").hint("Add others first: strandline cluster add BROKER")
		}
		if err := c.confirm(c.yes, "Take %s out of the voters %s? %s", numbers(ids), numbers(idsOf(q.Voters)),
			voteStrength(left)); err != nil {
			return err
		}
		for _, m := range leaving {
			if err := c.removeVoter(ctx, client, m); err != nil {
				return err
			}
		}
		return c.showVoters(ctx, client)
	})
}

// voteStrength says what a number of voters can bear.
func voteStrength(voters int) string {
	bears := (voters - 1) / 2
	text := fmt.Sprintf("%s can lose %d and still decide", plural(voters, "voter"), bears)
	if voters%2 == 0 {
		text += fmt.Sprintf(", as %d would: make them an odd number", voters-1)
	}
	return text + "."
}

// quorum asks for the quorum, within the time of one request.
func (a *app) quorum(ctx context.Context, client *kgo.Client) (*describedQuorum, error) {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	return describeQuorum(ctx, client)
}

func (a *app) removeVoter(ctx context.Context, client *kgo.Client, m quorumMember) error {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = m.ID, m.directory
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return refused(fmt.Sprintf("take broker %d out of the quorum", m.ID), resp.ErrorCode, resp.ErrorMessage)
}

// addVoter returns when the broker has caught up and its vote counts.
func (a *app) addVoter(ctx context.Context, client *kgo.Client, m quorumMember) error {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.VoterDirectoryID = m.ID, m.directory
	req.TimeoutMillis = int32(min(a.flags.timeout.Milliseconds(), 1<<31-1))
	if m.Address != "" {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = "CLUSTER", m.host, m.port
		req.Listeners = append(req.Listeners, l)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return refused(fmt.Sprintf("make broker %d a voter", m.ID), resp.ErrorCode, resp.ErrorMessage)
}

// showVoters shows who is left. Who stopped leading must be replaced first, so it
// tries for a while.
func (a *app) showVoters(ctx context.Context, client *kgo.Client) error {
	q, err := a.quorum(ctx, client)
	for try := 0; err != nil && try < 20; try++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		q, err = a.quorum(ctx, client)
	}
	if err != nil {
		return err
	}
	v := changedVoters{idsOf(q.Voters), idsOf(q.Learners)}
	if a.out.form == formTable {
		a.out.remark("Voters are %s now. %s", numbers(v.Voters), voteStrength(len(v.Voters)))
		return nil
	}
	t := newTable("voters", "learners")
	t.add(joinIDs(v.Voters), joinIDs(v.Learners))
	return a.out.show(v, t)
}
