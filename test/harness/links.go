package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Links are hosts, each a network namespace of its own, on links to one router, where
// packets from one to another can be made to vanish. Hosts are numbered from 1; host 0
// is the test's own.
//
// A cut is a rule of the router: who sends learns nothing of it, as with a switch that
// died. That needs root and the ip command, and no more.
type Links struct {
	t      testing.TB
	name   string // Of the router's namespace, and what others begin with.
	subnet int
	hosts  int
	cuts   map[[2]int]bool
}

// NewLinks makes n hosts, which go with the test.
func NewLinks(t testing.TB, n int) *Links {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("network namespaces need root, and in CI nothing is skipped")
		}
		t.Skip("network namespaces need root")
	}
	Needs(t, "ip")
	l := &Links{t: t, name: fmt.Sprintf("sl%d", os.Getpid()), hosts: n, cuts: map[[2]int]bool{}}
	t.Cleanup(l.remove)
	l.ip("netns", "add", l.name)
	l.inRouter("link", "set", "lo", "up")
	l.connect(0)
	for i := 1; i <= n; i++ {
		l.ip("netns", "add", l.Namespace(i))
		l.connect(i)
	}
	l.forward()
	return l
}

// Namespace returns the name of a host's namespace.
func (l *Links) Namespace(host int) string { return fmt.Sprintf("%sh%d", l.name, host) }

// Addr returns a host's address.
func (l *Links) Addr(host int) string { return fmt.Sprintf("198.18.%d.%d", l.subnet, 4*host+2) }

func (l *Links) gateway(host int) string { return fmt.Sprintf("198.18.%d.%d", l.subnet, 4*host+1) }

// ip runs the ip command.
func (l *Links) ip(args ...string) {
	l.t.Helper()
	if out, err := TryRun(10*time.Second, ".", "ip", args...); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (l *Links) inRouter(args ...string) {
	l.t.Helper()
	l.ip(append([]string{"-n", l.name}, args...)...)
}

// connect lays the link from a host to the router.
func (l *Links) connect(host int) {
	l.t.Helper()
	near, far := fmt.Sprintf("%s-%d", l.name, host), fmt.Sprintf("%s+%d", l.name, host)
	l.ip("link", "add", near, "type", "veth", "peer", "name", far)
	l.ip("link", "set", far, "netns", l.name)
	at := []string{}
	if host == 0 {
		l.claim(near)
	} else {
		l.ip("link", "set", near, "netns", l.Namespace(host))
		at = []string{"-n", l.Namespace(host)}
		l.ip(append(at, "link", "set", "lo", "up")...)
		l.ip(append(at, "addr", "add", l.Addr(host)+"/30", "dev", near)...)
		l.ip(append(at, "link", "set", near, "up")...)
	}
	l.inRouter("addr", "add", l.gateway(host)+"/30", "dev", far)
	l.inRouter("link", "set", far, "up")
	to := "default"
	if host == 0 {
		to = fmt.Sprintf("198.18.%d.0/24", l.subnet)
	}
	l.ip(append(at, "route", "add", to, "via", l.gateway(host))...)
}

// claim finds a subnet that nobody on this machine uses, for the test's own end.
func (l *Links) claim(device string) {
	l.t.Helper()
	for try := range 250 {
		l.subnet = (os.Getpid() + try) % 250
		routes, err := TryRun(10*time.Second, ".", "ip", "route", "show", "root", fmt.Sprintf("198.18.%d.0/24", l.subnet))
		if err == nil && strings.TrimSpace(routes) == "" {
			l.ip("addr", "add", l.Addr(0)+"/30", "dev", device)
			l.ip("link", "set", device, "up")
			return
		}
	}
	l.t.Fatal("no free subnet of 198.18.0.0/16")
}

// forward has the router route.
func (l *Links) forward() {
	l.t.Helper()
	out, err := TryRun(10*time.Second, ".", "ip", "netns", "exec", l.name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	if err != nil {
		l.t.Fatalf("have the router route: %v\n%s", err, out)
	}
}

// CutOneWay has what one host sends another vanish.
func (l *Links) CutOneWay(from, to int) {
	l.t.Helper()
	if way := [2]int{from, to}; !l.cuts[way] {
		l.cuts[way] = true
		l.inRouter("rule", "add", "from", l.Addr(from), "to", l.Addr(to), "blackhole")
	}
}

// Cut cuts two hosts off from each other.
func (l *Links) Cut(a, b int) {
	l.t.Helper()
	l.CutOneWay(a, b)
	l.CutOneWay(b, a)
}

// Isolate cuts a host off from all hosts but those named.
func (l *Links) Isolate(host int, but ...int) {
	l.t.Helper()
	keep := map[int]bool{host: true}
	for _, b := range but {
		keep[b] = true
	}
	for other := range l.hosts + 1 {
		if !keep[other] {
			l.Cut(host, other)
		}
	}
}

// Heal undoes all cuts.
func (l *Links) Heal() {
	l.t.Helper()
	for way := range l.cuts {
		l.inRouter("rule", "del", "from", l.Addr(way[0]), "to", l.Addr(way[1]), "blackhole")
	}
	clear(l.cuts)
}

// remove takes the namespaces away, and the links with them.
func (l *Links) remove() {
	names := []string{l.name}
	for i := 1; i <= l.hosts; i++ {
		names = append(names, l.Namespace(i))
	}
	_, _ = TryRun(10*time.Second, ".", "ip", "link", "del", fmt.Sprintf("%s-%d", l.name, 0))
	for _, name := range names {
		_, _ = TryRun(10*time.Second, ".", "ip", "netns", "del", name)
	}
}

// The ports of brokers that have a host to themselves.
const (
	kafkaPort   = 9092
	clusterPort = 9093
)

// StartClusterOn starts a broker on each host, all of them voters, in directories
// below dir.
func StartClusterOn(t testing.TB, links *Links, binary, dir string, args ...string) *Cluster {
	t.Helper()
	voters := make([]string, links.hosts)
	for i := range voters {
		voters[i] = fmt.Sprintf("%d@%s:%d", i+1, links.Addr(i+1), clusterPort)
	}
	c := &Cluster{}
	for i := range voters {
		host := i + 1
		b := Prepare(t, binary, filepath.Join(dir, fmt.Sprint(host)), append([]string{
			"--node-id", fmt.Sprint(host), "--cluster-listen", fmt.Sprintf("%s:%d", links.Addr(host), clusterPort),
			"--voters", strings.Join(voters, ","),
		}, args...)...)
		b.Addr, b.namespace = fmt.Sprintf("%s:%d", links.Addr(host), kafkaPort), links.Namespace(host)
		c.Brokers = append(c.Brokers, b)
	}
	for _, b := range c.Brokers {
		b.Restart()
	}
	return c
}
