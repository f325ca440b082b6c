package cli_test

import (
	"testing"

	"github.com/strandline/strandline/strandlinetest"
)

// A broker that hangs takes connections and says nothing. Others are asked before the time
// of a command is over, whichever stands first.
func TestABrokerThatHangs(t *testing.T) {
	t.Parallel()
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	c.want("orders\t3\t3\t", "topic", "create", "orders", "--partitions", "3", "--durability", "strict")
	cluster.Pause(1)
	for _, args := range [][]string{
		{"topic", "list"},
		{"cluster", "describe"},
		{"cluster", "doctor", "--watch", "0"},
		{"consume", "orders", "--from", "start", "--until", "end"},
	} {
		c.run(0, append(args, "--timeout", "6s")...)
	}
}
