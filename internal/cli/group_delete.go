package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type groupDelete struct {
	*app
	yes bool
}

func newGroupDelete(a *app) *cobra.Command {
	d := &groupDelete{app: a}
	cmd := &cobra.Command{
		Use:     "delete GROUP…",
		Aliases: []string{"rm"},
		Short:   "Delete groups and their offsets",
		Long: "Delete groups and their offsets. They must have no running member. On a terminal it " +
			"asks first.\n\n" +
			columnsHelp("group") + "\nWith --json it is {deleted: a list of names}.",
		Args:              wantArgs(1, -1, "one or more groups"),
		ValidArgsFunction: a.completeGroups(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (d *groupDelete) run(ctx context.Context, groups []string) error {
	if err := d.confirm(d.yes, "Delete %s with all offsets?", strings.Join(groups, ", ")); err != nil {
		return err
	}
	return d.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		responses, err := adm.DeleteGroups(ctx, groups...)
		if err != nil {
			return err
		}
		deleted := []string{}
		t := newTable("deleted group")
		var failed []error
		for _, name := range groups {
			switch r := responses[name]; {
			case isNoGroup(r.Err, ""):
				failed = append(failed, noGroup(ctx, adm, name))
			case r.Err != nil:
				failed = append(failed, refusal("delete group "+name, r.Err, ""))
			default:
				deleted = append(deleted, name)
				t.add(name)
			}
		}
		if err := d.out.show(map[string][]string{"deleted": deleted}, t); err != nil {
			return err
		}
		return d.joined(failed)
	})
}
