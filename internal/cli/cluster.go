package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newCluster(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Describe, grow, shrink, balance and check a cluster"}
	cmd.AddCommand(newClusterDescribe(a), newClusterDoctor(a), newClusterAdd(a), newClusterDrain(a), newClusterBalance(a),
		newClusterRemoveVoter(a), newClusterUnregister(a), newClusterRecover(a))
	return cmd
}

// describedCluster is a cluster as cluster describe shows it.
type describedCluster struct {
	ClusterID  string            `json:"cluster_id"`
	Controller int32             `json:"controller"` // -1 if there is none.
	Topics     int               `json:"topics"`
	Partitions int               `json:"partitions"`
	Leaderless int               `json:"partitions_without_leader"`
	NotInSync  int               `json:"partitions_not_in_sync"`
	Moving     int               `json:"partitions_moving"` // -1 if unknown.
	Brokers    []describedBroker `json:"brokers"`
	Quorum     *describedQuorum  `json:"quorum"` // null if unknown.
}

type describedBroker struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	Rack    string `json:"rack"`
	Leads   int    `json:"leader_of"`
	Hosts   int    `json:"replicas"`
	Bytes   int64  `json:"bytes"`      // -1 if unknown, as the next two.
	Free    int64  `json:"disk_free"`  // Of the fullest disk.
	Total   int64  `json:"disk_total"` // Of the fullest disk.
	Active  bool   `json:"controller"` // It is the controller.
	DirErr  string `json:"disk_error"` // What is wrong with a data directory.
	Dir     string `json:"data_dir"`   // The fullest, if there are several.
	Up      bool   `json:"up"`
	Role    string `json:"role"` // In the quorum: voter, learner, or "" for neither.
	Lag     int64  `json:"lag"`  // Records of the metadata that it lacks; -1 if unknown.
}

func newClusterDescribe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "describe",
		Short: "Show brokers, disks, voters and the controller",
		Long: "Show brokers, addresses, disks, voters and the active controller.\n\n" +
			"Voters elect the controller; learners follow the metadata without a vote. Their lag is\n" +
			"how many records of the metadata they lack.\n\n" +
			resultHelp[describedCluster]("broker", "address", "rack", "controller", "partitions led",
				"replicas", "bytes", "bytes free on disk", "bytes of disk", "up", "role", "lag"),
		Args: wantArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onCluster(cmd.Context(), a.describeCluster)
		},
	}
}

func (a *app) describeCluster(ctx context.Context, client *kgo.Client, adm *kadm.Client) error {
	limited, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	m, err := adm.Metadata(limited)
	if err != nil {
		return err
	}
	brokers, err := allBrokers(limited, client)
	if err != nil {
		a.out.warn("brokers that are down are not known: %v", a.explain(err).message)
	}
	c := clusterOf(m, brokers)
	a.addQuorum(limited, client, &c)
	if ctx.Err() != nil {
		return ctx.Err() // What is not known yet would be told as if nobody knew it.
	}
	asking, stop := context.WithTimeout(ctx, a.flags.timeout) // What the quorum does not say must not take it away.
	defer stop()
	dirs, err := adm.DescribeAllLogDirs(asking, nil)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		a.out.warn("some sizes are not known: %s", a.silence(err))
	}
	for i := range c.Brokers {
		b := &c.Brokers[i]
		answer, answered := dirs[b.ID]
		b.addDirs(answer)
		if c.Quorum == nil && len(dirs) > 0 { // Nobody finds out who is down: each was asked just now.
			b.Up = answered
		}
	}
	t := clusterTable(c)
	if a.out.form == formTable {
		a.out.printf("%s  %s, %s, %s\n", a.out.paint.bold("Cluster "+visible(c.ClusterID)),
			plural(len(c.Brokers), "broker"), plural(c.Topics, "topic"), plural(c.Partitions, "partition"))
		if q := c.Quorum; q != nil && len(q.Voters)+len(q.Learners) > 1 {
			a.out.printf("Voters %s, led by %d. %s\n", numbers(idsOf(q.Voters)), q.Leader, voteStrength(len(q.Voters)))
		}
		if c.Moving > 0 {
			a.out.printf("%s moving to other brokers\n", plural(c.Moving, "partition"))
		}
		if c.Leaderless+c.NotInSync > 0 {
			a.out.printf("%s\n", a.out.paint.red(fmt.Sprintf("%s without a leader, %d not fully in sync",
				plural(c.Leaderless, "partition"), c.NotInSync)))
		}
	}
	return a.out.show(c, t)
}

// addQuorum adds what a cluster of ours tells beside the metadata: what moves, and the
// quorum. Another's may not.
func (a *app) addQuorum(ctx context.Context, client *kgo.Client, c *describedCluster) {
	c.Moving = -1
	q, err := describeQuorum(ctx, client)
	if err != nil {
		f := a.explain(err)
		a.out.warn("the quorum is not known: %s", f.message)
		if errors.Is(err, kerr.NotController) {
			c.Controller = -1
			a.out.warn("who leads, and what is in sync, is as it was when there was a controller. %s", strings.Join(f.hints, " "))
		}
	} else {
		c.Quorum, c.Controller = q, q.Leader
	}
	if !errors.Is(err, kerr.NotController) { // Who would have to say what moves.
		if moving, err := reassignments(ctx, client); err == nil {
			c.Moving = len(moving)
		}
	}
	for i := range c.Brokers {
		b := &c.Brokers[i]
		b.Lag = -1
		b.Active = b.ID == c.Controller
		if q == nil {
			continue
		}
		if m, ok := find(q.Voters, b.ID); ok {
			b.Role, b.Lag = "voter", m.Lag
		} else if m, ok := find(q.Learners, b.ID); ok {
			b.Role, b.Lag = "learner", m.Lag
		}
	}
}

// clusterOf describes a cluster; all are its brokers, those that are down too.
func clusterOf(m kadm.Metadata, all []kmsg.DescribeClusterResponseBroker) describedCluster {
	c := describedCluster{ClusterID: m.Cluster, Controller: m.Controller, Brokers: []describedBroker{}}
	byID := map[int32]*describedBroker{}
	for _, b := range m.Brokers {
		row := describedBroker{
			ID: b.NodeID, Address: hostPort(b.Host, b.Port), Bytes: -1, Free: -1,
			Total: -1, Active: b.NodeID == m.Controller, Up: true,
		}
		if b.Rack != nil {
			row.Rack = *b.Rack
		}
		c.Brokers = append(c.Brokers, row)
	}
	for _, b := range all {
		if slices.ContainsFunc(c.Brokers, func(other describedBroker) bool { return other.ID == b.NodeID }) {
			continue
		}
		row := describedBroker{ID: b.NodeID, Address: hostPort(b.Host, b.Port), Bytes: -1, Free: -1, Total: -1}
		if b.Rack != nil {
			row.Rack = *b.Rack
		}
		c.Brokers = append(c.Brokers, row)
	}
	slices.SortFunc(c.Brokers, func(a, b describedBroker) int { return int(a.ID) - int(b.ID) })
	for i := range c.Brokers {
		byID[c.Brokers[i].ID] = &c.Brokers[i]
	}
	c.Topics = len(m.Topics)
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		c.Partitions++
		if p.Leader < 0 {
			c.Leaderless++
		} else if b := byID[p.Leader]; b != nil {
			b.Leads++
		}
		if len(p.ISR) < len(p.Replicas) {
			c.NotInSync++
		}
		for _, r := range p.Replicas {
			if b := byID[r]; b != nil {
				b.Hosts++
			}
		}
	})
	return c
}

// addDirs adds up what a broker's data directories hold.
func (b *describedBroker) addDirs(dirs kadm.DescribedLogDirs) {
	for _, d := range dirs {
		if d.Err != nil {
			b.DirErr = fmt.Sprintf("%s: %v", d.Dir, d.Err)
			continue
		}
		b.Bytes = max(0, b.Bytes) + d.Size()
		if d.TotalBytes > 0 && (b.Total < 0 || d.UsableBytes < b.Free) {
			b.Dir, b.Free, b.Total = d.Dir, d.UsableBytes, d.TotalBytes
		}
	}
}

func clusterTable(c describedCluster) *table {
	t := newTable(">broker", "address", "rack", "controller", ">leads", ">replicas", ">size",
		">disk free", ">of", "up", "role", ">lag")
	for _, b := range c.Brokers {
		active := cell{text: fmt.Sprint(b.Active), person: "-", style: styleDim}
		if b.Active {
			active = cell{text: "true", person: "yes", style: styleGreen}
		}
		up := cell{text: "true", person: "yes", style: styleGreen}
		if !b.Up {
			up = cell{text: "false", person: "down", style: styleRed}
		}
		free := known(b.Free, sizeCell)
		if b.Total > 0 && b.Free < b.Total/10 {
			free.style = styleYellow
		}
		if b.DirErr != "" {
			free = cell{text: "-", person: b.DirErr, style: styleRed}
		}
		t.add(b.ID, cell{text: b.Address, style: styleCyan}, orDash(b.Rack), active,
			number(int64(b.Leads)),
			number(int64(b.Hosts)), known(b.Bytes, sizeCell), free, known(b.Total, sizeCell), up, orDash(b.Role),
			known(b.Lag, number))
	}
	return t
}
