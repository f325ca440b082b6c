package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionTimeout bounds what a shell waits for a broker when somebody
// presses tab.
const completionTimeout = 2 * time.Second

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete makes a completer of a list that a broker gives. In doubt it offers
// nothing: there is nobody to show an error to.
func (a *app) complete(
	most int, list func(context.Context, *kadm.Client) ([]string, error),
) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most || a.prepare(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.flags.timeout = completionTimeout
		a.dials.warn = nil
		var names []string
		err := a.admin(cmd.Context(), func(ctx context.Context, adm *kadm.Client) error {
			all, err := list(ctx, adm)
			names = slices.DeleteFunc(all, func(n string) bool { return slices.Contains(args, n) })
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTopics offers the names of topics for the first most arguments.
func (a *app) completeTopics(most int) completer {
	return a.complete(most, func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		topics, err := adm.ListTopics(ctx)
		return topics.Names(), err
	})
}

// completeGroups offers the names of groups for the first most arguments.
func (a *app) completeGroups(most int) completer {
	return a.complete(most, func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		groups, err := adm.ListGroups(ctx)
		return groups.Groups(), err
	})
}

// completeBrokers offers the ids of brokers.
func (a *app) completeBrokers(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.complete(-1, func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		brokers, err := adm.ListBrokers(ctx)
		var ids []string
		for _, b := range brokers {
			ids = append(ids, strconv.Itoa(int(b.NodeID)))
		}
		return ids, err
	})(cmd, args, word)
}
