package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type groupDescribe struct {
	*app
	lagTime bool
	members bool
}

// describedGroup is a group as group describe shows it.
type describedGroup struct {
	Group       string               `json:"group"`
	State       string               `json:"state"`
	Protocol    string               `json:"protocol"`
	Coordinator int32                `json:"coordinator"`
	Lag         int64                `json:"lag"` // Over all partitions.
	Remarks     []string             `json:"remarks"`
	Members     []describedMember    `json:"members"`
	Partitions  []describedGroupPart `json:"partitions"`
}

type describedMember struct {
	ID         string             `json:"id"`
	Instance   string             `json:"instance"`
	Client     string             `json:"client"`
	Host       string             `json:"host"`
	Partitions map[string][]int32 `json:"partitions"`
}

type describedGroupPart struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1 if there is none, as the next three.
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"lag"`
	// LagSeconds is the age of the oldest record that the group has not read; -1
	// where it was not asked for or is not known.
	LagSeconds float64 `json:"lag_seconds"`
	Client     string  `json:"client"`
	Host       string  `json:"host"`
	Member     string  `json:"member"`
	Error      string  `json:"error"`
}

func newGroupDescribe(a *app) *cobra.Command {
	d := &groupDescribe{app: a}
	cmd := &cobra.Command{
		Use:   "describe GROUP…",
		Short: "Show a group's members, offsets and lag",
		Long: "Show a group's members, offsets and lag, and what is odd about it.\n\n" +
			columnsHelp("group", "topic", "partition", "committed offset", "end offset", "lag",
				"lag in seconds", "client id", "host", "member id") +
			"\nWith --members they are group, member id, instance id, client id, host, topics with " +
			"partitions.\n" + jsonHelp[[]describedGroup](),
		Args:              wantArgs(1, -1, "one or more groups"),
		ValidArgsFunction: a.completeGroups(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&d.lagTime, "lag-time", false,
		"find the age of the oldest unread record too, by reading it")
	cmd.Flags().BoolVar(&d.members, "members", false, "show the members instead of the partitions")
	return cmd
}

func (d *groupDescribe) run(ctx context.Context, names []string) error {
	return d.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		lags, err := adm.Lag(ctx, names...)
		if err != nil {
			return err
		}
		groups := make([]*describedGroup, 0, len(names))
		var failed []error
		for _, name := range names {
			l, ok := lags[name]
			err := l.Error()
			switch {
			case !ok || isNoGroup(err, l.State) && len(l.Lag) == 0:
				failed = append(failed, noGroup(ctx, adm, name))
			case err != nil:
				failed = append(failed, refusal("describe group "+name, err, ""))
			default:
				groups = append(groups, describeGroup(l))
			}
		}
		if d.lagTime {
			if err := d.addLagTimes(ctx, groups); err != nil {
				return err
			}
		}
		if err := d.print(groups); err != nil {
			return err
		}
		return d.joined(failed)
	})
}

func describeGroup(l kadm.DescribedGroupLag) *describedGroup {
	g := &describedGroup{
		Group: l.Group, State: l.State, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID,
		Remarks: []string{}, Members: []describedMember{}, Partitions: []describedGroupPart{},
	}
	for _, m := range l.Members {
		g.Members = append(g.Members, describeMember(m))
	}
	for _, p := range l.Lag.Sorted() {
		row := describedGroupPart{
			Topic: p.Topic, Partition: p.Partition, Committed: p.Commit.At, Start: -1, End: -1,
			Lag: p.Lag, LagSeconds: -1,
		}
		if p.End.Err == nil {
			row.End = p.End.Offset
		}
		if p.Start.Err == nil {
			row.Start = p.Start.Offset
		}
		if p.Err != nil {
			row.Error = p.Err.Error()
		}
		if row.Lag > 0 {
			g.Lag += row.Lag
		}
		if m := p.Member; m != nil {
			row.Client, row.Host, row.Member = m.ClientID, m.ClientHost, m.MemberID
		}
		g.Partitions = append(g.Partitions, row)
	}
	g.Remarks = append(g.Remarks, groupRemarks(g)...)
	return g
}

func describeMember(m kadm.DescribedGroupMember) describedMember {
	row := describedMember{
		ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost,
		Partitions: map[string][]int32{},
	}
	if m.InstanceID != nil {
		row.Instance = *m.InstanceID
	}
	if assigned, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range assigned.Topics {
			row.Partitions[t.Topic] = t.Partitions
		}
	}
	return row
}

// groupRemarks says what is odd about a group: what its owner would otherwise
// find out days later.
func groupRemarks(g *describedGroup) []string {
	var remarks []string
	unowned := 0
	for _, p := range g.Partitions {
		if p.Committed >= 0 && p.Start > p.Committed {
			remarks = append(remarks,
				fmt.Sprintf("%s-%d: %s between the committed offset %d and the log start %d were removed "+
					"before they were read",
					p.Topic, p.Partition, plural(p.Start-p.Committed, "record"), p.Committed, p.Start))
		}
		if p.Committed >= 0 && p.End >= 0 && p.Committed > p.End {
			remarks = append(remarks,
				fmt.Sprintf("%s-%d: the committed offset %d is beyond the log end %d: was the topic deleted "+
					"and made again?",
					p.Topic, p.Partition, p.Committed, p.End))
		}
		if p.Member == "" {
			unowned++
		}
	}
	if g.State == stateStable && unowned > 0 {
		remarks = append(remarks,
			fmt.Sprintf("%s read by no member: do all members subscribe to the same topics?",
				plural(unowned, "partition")))
	}
	if idle := idleMembers(g); g.State == stateStable && idle > 0 {
		remarks = append(remarks,
			fmt.Sprintf("%s nothing to read: there are more members than partitions",
				plural(idle, "member")))
	}
	if g.State == stateEmpty && g.Lag > 0 {
		remarks = append(remarks, "no member is running, and records wait")
	}
	return remarks
}

func idleMembers(g *describedGroup) int {
	idle := 0
	for _, m := range g.Members {
		if len(m.Partitions) == 0 {
			idle++
		}
	}
	return idle
}

func (d *groupDescribe) print(groups []*describedGroup) error {
	build := groupTable
	if d.members {
		build = memberTable
	}
	if d.out.form != formTable {
		t := build(groups...)
		return d.out.show(groups, t)
	}
	p := d.out.paint
	for i, g := range groups {
		if i > 0 {
			d.out.printf("\n")
		}
		d.out.printf("%s  %s, %s, lag %s, assignor %s, coordinator %d\n", p.bold(visible(g.Group)),
			p.apply(stateCell(g.State).style, g.State), plural(len(g.Members), "member"), thousands(g.Lag),
			orDash(g.Protocol), g.Coordinator)
		for _, r := range g.Remarks {
			d.out.printf("  %s\n", p.yellow(visible(r)))
		}
		t := build(g)
		t.dropFirst()
		t.align(d.out.stdout, p)
	}
	return d.out.flush()
}

func groupTable(groups ...*describedGroup) *table {
	t := newTable("group", "topic", ">partition", ">committed", ">end", ">lag", ">lag time", "client",
		"host", "member")
	for _, g := range groups {
		for _, p := range g.Partitions {
			lag := known(p.Lag, number)
			if p.Lag > 0 {
				lag.style = styleYellow
			}
			age := missing()
			if p.LagSeconds >= 0 {
				age = cell{
					text:   fmt.Sprintf("%.3f", p.LagSeconds),
					person: roundDuration(time.Duration(p.LagSeconds * float64(time.Second))),
				}
			}
			t.add(g.Group, cell{text: p.Topic, style: styleCyan}, p.Partition, known(p.Committed, number),
				known(p.End, number),
				lag, age, orDash(p.Client), orDash(p.Host), cell{text: orDash(p.Member), style: styleDim})
		}
	}
	return t
}

func memberTable(groups ...*describedGroup) *table {
	t := newTable("group", "member", "instance", "client", "host", "partitions")
	for _, g := range groups {
		for _, m := range g.Members {
			t.add(g.Group, m.ID, orDash(m.Instance), orDash(m.Client), orDash(m.Host),
				orDash(assignedText(m.Partitions)))
		}
	}
	return t
}
