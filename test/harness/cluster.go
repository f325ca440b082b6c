package harness

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Cluster is several broker processes that form one queue. Brokers are numbered from
// 0, their ids from 1.
type Cluster struct {
	Brokers []*Broker
	// Doors are where brokers listen for one another.
	Doors []string
}

// StartCluster starts n brokers, all of them voters, in directories below dir.
func StartCluster(t testing.TB, binary, dir string, n int, args ...string) *Cluster {
	t.Helper()
	c := PrepareCluster(t, binary, dir, n, args...)
	for _, b := range c.Brokers {
		b.Restart()
	}
	return c
}

// PrepareCluster is StartCluster for brokers that are to be started with Restart.
func PrepareCluster(t testing.TB, binary, dir string, n int, args ...string) *Cluster {
	t.Helper()
	voters := make([]string, n)
	for i := range voters {
		voters[i] = fmt.Sprintf("%d@%s", i+1, FreeAddr(t))
	}
	c := &Cluster{}
	for i, v := range voters {
		_, address, _ := strings.Cut(v, "@")
		c.Doors = append(c.Doors, address)
		c.Brokers = append(c.Brokers, PrepareHTTP(t, binary, filepath.Join(dir, fmt.Sprint(i+1)), append([]string{
			"--node-id", fmt.Sprint(i + 1), "--cluster-listen", address, "--voters", strings.Join(voters, ","),
		}, args...)...))
	}
	return c
}

// Freeze stops all brokers where they are, see Broker.Freeze.
func (c *Cluster) Freeze() {
	for _, b := range c.Brokers {
		b.Freeze()
	}
}

// Stop stops all brokers cleanly, one after the other.
func (c *Cluster) Stop() {
	for _, b := range c.Brokers {
		b.Stop()
	}
}

// Addrs returns where clients find the brokers.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		addrs[i] = b.Addr
	}
	return addrs
}
