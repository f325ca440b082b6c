package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/strandline/strandline/internal/nearest"
)

// newHelp is the command that explains others. Cobra's own exits 0 for a command
// that is not there.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				f := usagef("there is no command %q", strings.Join(args, " "))
				if cmd != nil && len(rest) > 0 {
					if near := nearest.To(rest[0], slices.Values(subcommands(cmd))); near != "" {
						f.hint("Did you mean %s %s?", cmd.CommandPath(), near)
					}
				}
				return f.hint("See strandline --help")
			}
			return cmd.Help()
		},
	}
}
