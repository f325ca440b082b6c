package cli

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much garbage may lie on top of what is alive before it is collected,
// in percent. Most of what a broker has alive are buffers of the journal, which make no
// garbage. With Go's 100 three brokers held 553 MB after loads after which they hold 398
// with this, for 108 collections in place of 59, and no more CPU that can be measured.
const gcPercent = 50

// tuneCollector sets it for the process, unless GOGC says something else. It is not done
// where the broker is embedded: that process is another's.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
