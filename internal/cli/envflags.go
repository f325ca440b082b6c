package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix begins the name of every variable that stands for a flag.
const envPrefix = "STRANDLINE_"

// envAnnotation marks a flag that a variable stands for.
const envAnnotation = "strandline-env"

func parseEnviron(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// envName is the variable that stands for a flag: data-dir is STRANDLINE_DATA_DIR.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// markEnv lets a variable stand for each flag of the set, and says so in its
// help.
func markEnv(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[envAnnotation] = []string{envName(f.Name)}
	})
}

// bindEnv gives the marked flags that the command line leaves out the values of
// their variables. An empty variable counts as none.
func (a *app) bindEnv(cmd *cobra.Command) error {
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[envAnnotation]
		if failed != nil || f.Changed || len(names) == 0 || f.Name == "set" {
			return
		}
		value := a.vars[names[0]]
		if value == "" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = usagef("%s=%q: %w", names[0], value, err).
				hint("%s stands for --%s: %s", names[0], f.Name, f.Usage)
		}
	})
	return failed
}
