package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline/strandline/internal/nearest"
)

func newGroup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "group", Aliases: []string{"groups"},
		Short: "List, describe, seek and delete consumer groups",
	}
	cmd.AddCommand(newGroupList(a), newGroupDescribe(a), newGroupSeek(a), newGroupDelete(a))
	return cmd
}

// The states of a group that commands act on.
const (
	stateDead   = "Dead"
	stateEmpty  = "Empty"
	stateStable = "Stable"
)

// noGroup is the failure of a group that does not exist.
func noGroup(ctx context.Context, adm *kadm.Client, name string) error {
	f := failf("there is no group %s", name)
	f.cause = kerr.GroupIDNotFound
	if all, err := adm.ListGroups(ctx); err == nil {
		if near := nearest.To(name, slices.Values(all.Groups())); near != "" {
			return f.hint("Did you mean %s?", near)
		}
	}
	return f.hint("strandline group list shows what is there.")
}

// isNoGroup reports whether an answer means that there is no such group.
// Brokers used to describe one as Dead and newer ones answer with an error.
func isNoGroup(err error, state string) bool {
	return errors.Is(err, kerr.GroupIDNotFound) || err == nil && state == stateDead
}

// stateCell colours the state of a group.
func stateCell(state string) cell {
	c := cell{text: orDash(state)}
	switch state {
	case stateStable:
		c.style = styleGreen
	case stateEmpty, stateDead:
		c.style = styleDim
	default:
		c.style = styleYellow
	}
	return c
}
