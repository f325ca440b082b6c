package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const clusterDoctorLong = `Look for what is wrong with a cluster, or will be when the next broker fails, and say what to
do about it: partitions without a leader, below min.insync.replicas or not fully in sync;
topics with one replica, with no replica to spare, or with unclean elections; brokers that
are down, voters that are lost or even in number; leaders and replicas that are uneven; disks
that fill up; and partitions that take far more records than their topic's others, with the
key that makes them do so. For the last it watches for --watch, and reads some of the
records that came to those that stand out.

strandline doctor looks at all but the last of these too, and at how clients reach it.

The exit code is 4 if there is a problem. Warnings do not change it, unless --strict is given.

`

func newClusterDoctor(a *app) *cobra.Command {
	d := &doctor{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with a cluster",
		Long: clusterDoctorLong + resultHelp[[]finding]("status (ok, note, warning or problem)", "check",
			"message", "advice"),
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.runCluster(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&d.strict, "strict", false, "exit with 4 on warnings too")
	cmd.Flags().DurationVar(&d.watch, "watch", 2*time.Second, "how long to watch for hot partitions; 0 for not at all")
	return cmd
}

func (d *doctor) runCluster(ctx context.Context) error {
	if d.watch < 0 {
		return usagef("--watch %v: want a time, such as 2s", d.watch)
	}
	client, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	limited, cancel := d.limit(ctx)
	defer cancel()
	m, err := adm.Metadata(limited)
	if err != nil {
		return err
	}
	d.checkCluster(ctx, client, m)
	d.checkTopics(ctx, adm, m)
	d.checkDisks(ctx, adm)
	if d.watch > 0 {
		d.checkHot(ctx, adm, m)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.conclude()
}
