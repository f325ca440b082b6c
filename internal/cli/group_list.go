package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type groupList struct {
	*app
	states []string
}

// listedGroup is a group as group list shows it.
type listedGroup struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocol_type"`
	Coordinator  int32  `json:"coordinator"`
}

func newGroupList(a *app) *cobra.Command {
	l := &groupList{app: a}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List consumer groups",
		Long: "List consumer groups.\n\n" + resultHelp[[]listedGroup]("group", "state", "type",
			"protocol type", "coordinator"),
		Args: wantArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkStates(l.states, groupStates()); err != nil {
				return err
			}
			return l.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&l.states, "state", nil,
		"only groups in these `states`, such as Stable or Empty")
	return cmd
}

// groupStates are all states that Kafka's groups have, of whatever type.
func groupStates() []string {
	return []string{
		"Assigning", "CompletingRebalance", stateDead, stateEmpty, "NotReady", "PreparingRebalance", "Reconciling", "Stable",
	}
}

// checkStates refuses states that there are none of: brokers take them for ones that
// nothing is in, and an empty list would look like good news.
func checkStates(wanted, known []string) error {
	for _, state := range wanted {
		if !slices.Contains(known, state) {
			return usagef("--state %q: want %s or %s", state,
				strings.Join(known[:len(known)-1], ", "), known[len(known)-1])
		}
	}
	return nil
}

func (l *groupList) run(ctx context.Context) error {
	return l.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		all, err := adm.ListGroups(ctx, l.states...)
		if err != nil {
			return err
		}
		groups := []listedGroup{}
		t := newTable("group", "state", "type", "protocol", ">coordinator")
		t.empty = "There are no consumer groups."
		for _, g := range all.Sorted() {
			groups = append(groups, listedGroup{
				g.Group, g.State, g.GroupType, g.ProtocolType,
				g.Coordinator,
			})
			t.add(cell{text: g.Group, style: styleCyan}, stateCell(g.State), orDash(g.GroupType),
				orDash(g.ProtocolType), g.Coordinator)
		}
		return l.out.show(groups, t)
	})
}
