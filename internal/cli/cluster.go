package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newCluster(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Describe the cluster"}
	cmd.AddCommand(newClusterDescribe(a))
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
	Brokers    []describedBroker `json:"brokers"`
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
}

func newClusterDescribe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "describe",
		Short: "Show brokers, addresses, disks and the controller",
		Long: "Show brokers, addresses, disks and the controller.\n\n" +
			resultHelp[describedCluster]("broker", "address", "rack", "controller", "partitions led",
				"replicas", "bytes", "bytes free on disk", "bytes of disk"),
		Args: wantArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd.Context(), a.describeCluster)
		},
	}
}

func (a *app) describeCluster(ctx context.Context, adm *kadm.Client) error {
	m, err := adm.Metadata(ctx)
	if err != nil {
		return err
	}
	c := clusterOf(m)
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		a.out.warn("sizes are not known: %v", err)
	}
	for i := range c.Brokers {
		c.Brokers[i].addDirs(dirs[c.Brokers[i].ID])
	}
	t := clusterTable(c)
	if a.out.form == formTable {
		a.out.printf("%s  %s, %s, %s\n", a.out.paint.bold("Cluster "+visible(c.ClusterID)),
			plural(len(c.Brokers), "broker"), plural(c.Topics, "topic"), plural(c.Partitions, "partition"))
		if c.Leaderless+c.NotInSync > 0 {
			a.out.printf("%s\n", a.out.paint.red(fmt.Sprintf("%s without a leader, %d not fully in sync",
				plural(c.Leaderless, "partition"), c.NotInSync)))
		}
	}
	return a.out.show(c, t)
}

func clusterOf(m kadm.Metadata) describedCluster {
	c := describedCluster{ClusterID: m.Cluster, Controller: m.Controller, Brokers: []describedBroker{}}
	byID := map[int32]*describedBroker{}
	for _, b := range m.Brokers {
		row := describedBroker{
			ID: b.NodeID, Address: hostPort(b.Host, b.Port), Bytes: -1, Free: -1,
			Total: -1, Active: b.NodeID == m.Controller,
		}
		if b.Rack != nil {
			row.Rack = *b.Rack
		}
		c.Brokers = append(c.Brokers, row)
	}
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
		">disk free", ">of")
	for _, b := range c.Brokers {
		active := cell{text: fmt.Sprint(b.Active), person: "-", style: styleDim}
		if b.Active {
			active = cell{text: "true", person: "yes", style: styleGreen}
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
			number(int64(b.Hosts)), known(b.Bytes, sizeCell), free, known(b.Total, sizeCell))
	}
	return t
}
