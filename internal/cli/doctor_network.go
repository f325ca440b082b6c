package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	defaultPort     = "9092"
	defaultHTTPPort = "8080"
	slowLookup      = 500 * time.Millisecond
)

// checkBootstrap looks at the addresses that the user gave and reports whether
// one of them answers.
func (d *doctor) checkBootstrap(ctx context.Context) bool {
	answered := false
	for _, address := range d.flags.brokers {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			d.say(statusProblem, "address", fmt.Sprintf("%s: %v", address, err), "Write HOST:PORT.")
			continue
		}
		if !d.checkName(ctx, address, host) {
			continue
		}
		began := time.Now()
		if _, err := d.probe(ctx, address); err != nil {
			d.say(statusProblem, "address", fmt.Sprintf("%s: %v", address, err), adviceForProbe(err))
			continue
		}
		d.ok("address", "a broker answers at %s in %s", address, roundDuration(time.Since(began)))
		answered = true
	}
	return answered
}

func adviceForProbe(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "refused"):
		return "Is the broker running, and does it listen on this address? Start one with: strandline " +
			"start"
	case strings.Contains(text, "HTTP"):
		return "Give the address of the Kafka listener (9092 unless set), not that of the HTTP listener."
	case strings.Contains(text, "TLS"):
		return "This listener wants TLS: say --tls, or --tls-ca FILE with the CA of its certificate."
	case strings.Contains(text, "in time"), strings.Contains(text, "no route"):
		return "A firewall, a security group or a wrong address drops the packets."
	case strings.Contains(text, "does not answer"):
		return "The process takes connections but hangs: look at its log and at the disk."
	}
	return ""
}

// checkName looks a host name up.
func (d *doctor) checkName(ctx context.Context, address, host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	found, took, err := resolve(ctx, host)
	switch {
	case err != nil:
		d.say(statusProblem, "name", fmt.Sprintf("%s: %v", address, err),
			"Add the name to DNS or to /etc/hosts, or use an IP address.")
		return false
	case took > slowLookup:
		d.say(statusWarning, "name", fmt.Sprintf("looking up %s took %s", host, roundDuration(took)),
			"Every new connection of every client waits for this: look at the resolver.")
	default:
		d.ok("name", "%s is %s", host, some(found))
	}
	return true
}

// checkAdvertised goes to every broker at the address that it tells clients to
// use: the question that users of Kafka ask most.
func (d *doctor) checkAdvertised(ctx context.Context, m kadm.Metadata) {
	for _, b := range m.Brokers {
		address := hostPort(b.Host, b.Port)
		what := fmt.Sprintf("broker %d advertises %s", b.NodeID, address)
		if ip := net.ParseIP(b.Host); ip != nil && ip.IsUnspecified() {
			d.say(statusProblem, "advertised", what+", which is no address that a client can go to",
				"Start the broker with --advertise HOST:PORT.")
			continue
		}
		if net.ParseIP(b.Host) == nil && !d.checkName(ctx, what, b.Host) {
			continue
		}
		cluster, err := d.probe(ctx, address)
		switch {
		case err != nil:
			d.say(statusProblem, "advertised", fmt.Sprintf("%s: %v", what, err),
				"Clients here find the broker and then fail. Start it with --advertise and an address that "+
					"reaches it from here.")
		case cluster != m.Cluster:
			d.say(statusProblem, "advertised",
				fmt.Sprintf("%s, and there stands a broker of cluster %q, not of %q", what, cluster, m.Cluster),
				"Two brokers advertise one address, or a port is forwarded to the wrong one.")
		case isLoopback(b.Host):
			d.say(statusNote, "advertised",
				what+": clients on other machines, and in containers, cannot use that",
				"For those: strandline start --listen 0.0.0.0:9092 --advertise NAME")
		default:
			d.ok("advertised", "%s, and answers there", what)
		}
	}
}

// brokerNotes is what a broker of ours has noticed itself.
type brokerNotes struct {
	Unreached []struct {
		Client     string    `json:"client"`
		ClientID   string    `json:"client_id"`
		Advertised string    `json:"advertised"`
		Since      time.Time `json:"since"`
		Asked      int       `json:"asked"`
	} `json:"unreached_clients"`
	Corrupt []struct {
		Topic     string    `json:"topic"`
		Partition int32     `json:"partition"`
		File      string    `json:"file"`
		Position  int64     `json:"position"`
		Reason    string    `json:"reason"`
		Since     time.Time `json:"since"`
	} `json:"corrupt"`
	CorruptTotal int `json:"corrupt_total"`
}

// checkNotes asks the broker what it has noticed: clients that were told an
// address and never came to it, and stored data that is corrupt. Only the broker
// sees that, and only ours tells.
func (d *doctor) checkNotes(ctx context.Context) {
	address := d.http
	if address == "none" {
		return
	}
	host, port, _ := net.SplitHostPort(d.flags.brokers[0]) // It was checked.
	switch {
	case address == "" && port == defaultPort:
		address = net.JoinHostPort(host, defaultHTTPPort)
	case address == "":
		// On another port than ours there stands another broker, perhaps.
		d.sayUnasked()
		return
	}
	address = trimScheme(address)
	answer, err := d.askNotes(ctx, address)
	switch {
	case err != nil && d.http != "":
		d.say(statusProblem, "clients", fmt.Sprintf("no answer over HTTP from %s: %v", address, err),
			"Is it the address of --http-listen?")
	case err != nil:
		d.sayUnasked()
	default:
		d.sayUnreached(answer)
		d.sayCorrupt(answer)
	}
}

func (d *doctor) sayUnreached(answer brokerNotes) {
	if len(answer.Unreached) == 0 {
		d.ok("clients", "every client that asked for an address came to it")
	}
	for _, c := range answer.Unreached {
		d.say(statusProblem, "clients",
			fmt.Sprintf("client %q at %s was told %s %s since %s and never came", c.ClientID, c.Client,
				c.Advertised,
				plural(c.Asked, "time"), timestamp(c.Since)),
			"Can it resolve and reach that address? Set --advertise to one that it can use.")
	}
}

// sayCorrupt lists damage that reads and the last start came upon.
func (d *doctor) sayCorrupt(answer brokerNotes) {
	if answer.CorruptTotal == 0 {
		d.ok("data", "no stored data was found corrupt since the broker started")
	}
	for _, c := range answer.Corrupt {
		d.say(statusProblem, "data",
			fmt.Sprintf("%s-%d: %s is corrupt at position %d since %s: %s", c.Topic, c.Partition, c.File,
				c.Position, timestamp(c.Since), c.Reason),
			"It is not served. Stop the broker and restore the file from a copy, or give up what is lost: "+
				"strandline log repair. Or let consumers seek past it: strandline group seek")
	}
	if more := answer.CorruptTotal - len(answer.Corrupt); more > 0 {
		d.say(statusProblem, "data", fmt.Sprintf("corrupt in %s more", plural(more, "place")),
			"Look at all of it, with the broker stopped: strandline log verify")
	}
}

func (d *doctor) sayUnasked() {
	d.say(statusNote, "clients", "not asked which clients fail to come to the advertised address, and what is corrupt",
		"Strandline knows, and tells over HTTP: --http HOST:PORT")
}

func (a *app) askNotes(ctx context.Context, address string) (brokerNotes, error) {
	var answer brokerNotes
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := a.get(ctx, address, "/v1/doctor")
	if err != nil {
		return answer, fmt.Errorf("%s", dialReason(err))
	}
	defer resp.Body.Close() //nolint:errcheck // It was read.
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("status %s", resp.Status)
	}
	return answer, json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxProbeAnswer)).Decode(&answer)
}
