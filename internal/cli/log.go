package cli

import (
	"github.com/spf13/cobra"
)

const logPathHelp = `A PATH is a data directory (default ./strandline-data), a partition's directory, or a
.log file, ours or Apache Kafka's. Nothing is locked and nothing written, so a broker
may be running on it; what it has not written yet is not seen.`

// newLog makes the commands that read a data directory without a broker.
func newLog(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Read, verify and repair the files of a data directory, without a broker",
	}
	cmd.AddCommand(newLogDump(a), newLogVerify(a), newLogRepair(a))
	return cmd
}
