package peer_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Nodes stop and start again where others were, or where nobody was. They find one another
// as soon as one of any two that are needed knows where the other is, from the addresses it
// was started with, or hears it from others.
func TestNodesMove(t *testing.T) {
	const free = "10.0.0.30:9093"
	swap := []string{"", addressOf(2), addressOf(1)}
	rotate := []string{addressOf(1), addressOf(2), addressOf(0)}
	const nobody = -1
	for name, move := range map[string]struct {
		to []string // By node; "" is where it was.
		// told says that the nodes that start know it from their lists of voters.
		told bool
		down int // Is not started again.
	}{
		"two swap, told":                   {swap, true, nobody},
		"two swap, not told":               {swap, false, nobody},
		"two swap, told, third down":       {swap, true, 0},
		"two swap, told, one down":         {swap, true, 1},
		"two swap, not told, one down":     {swap, false, 1},
		"three rotate, told":               {rotate, true, nobody},
		"three rotate, not told":           {rotate, false, nobody},
		"three rotate, told, one down":     {rotate, true, 2},
		"three rotate, not told, one down": {rotate, false, 2},
		"one moves, told":                  {[]string{"", free, ""}, true, nobody},
		"one moves, not told":              {[]string{"", free, ""}, false, nobody},
		"one moves, not told, one down":    {[]string{"", free, ""}, false, 0},
		"one moves to another's, one down": {[]string{"", addressOf(0), ""}, false, 0},
		"two move, told":                   {[]string{"", free, addressOf(1)}, true, nobody},
		"two move, not told":               {[]string{"", free, addressOf(1)}, false, nobody},
	} {
		for first := range kafka.BrokerID(3) { // Whoever led.
			for _, all := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/all=%t", name, first, all), func(t *testing.T) {
					simulate(t, 3, nil, func(c *cluster) {
						c.moveNodes(first, move.to, move.told, move.down, all)
					})
				})
			}
		}
	}
}

// moveNodes stops those that move, and starts them where they are to be. Node n of the list
// is node n+first of the cluster. With all, those that stay are started again too.
func (c *cluster) moveNodes(first kafka.BrokerID, to []string, told bool, down int, all bool) {
	c.mustAdd("before")
	c.agree()
	number := func(n int) kafka.BrokerID { return (kafka.BrokerID(n) + first) % 3 }
	places := map[kafka.BrokerID]string{}
	for n, address := range to {
		places[number(n)] = addressOf(number(n))
		for other := range 3 {
			if address == addressOf(kafka.BrokerID(other)) {
				places[number(n)] = addressOf(number(other))
			}
		}
		if address != "" && !slices.Contains(slices.Collect(maps.Values(c.voters)), address) {
			places[number(n)] = address
		}
	}
	if told {
		c.voters = places // Those that run keep the old ones.
	}
	var stopped []kafka.BrokerID
	for n := range 3 {
		if all || n == down || to[n] != "" {
			c.kill(number(n))
			stopped = append(stopped, number(n))
		}
	}
	for _, id := range stopped {
		if down < 0 || id != number(down) {
			c.startAt(id, places[id])
		}
	}
	start := time.Now()
	c.active()
	elected := time.Since(start)
	c.agree()
	if d := time.Since(start); elected > 2*time.Second || d > 3*time.Second {
		c.t.Errorf("a leader after %s, all follow it after %s", elected, d)
	}
	c.mustAdd("after")
	c.agree()
	if down >= 0 {
		return
	}
	// Whoever is left knows the other one.
	c.kill(c.active().id)
	start = time.Now()
	c.mustAdd("under another")
	if d := time.Since(start); d > time.Second {
		c.t.Errorf("another leader after %s", d)
	}
	c.agree()
}

// A learner does not go on believing in a leader that lost its majority, and follows the next.
func TestLearnerMissesLeader(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("before")
		learner := c.start(3)
		c.agree()
		leader := c.active()
		voters := []kafka.BrokerID{(leader.id + 1) % 3, (leader.id + 2) % 3}
		for _, id := range voters {
			c.kill(id)
		}
		start := time.Now()
		c.eventually("the learner believes in a leader", func() bool { return learner.Status().Leader == kafka.NoBroker })
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("after %s", d)
		}
		for _, id := range voters {
			c.start(id)
		}
		c.mustAdd("after")
		c.agree()
		if learner.Status().Leader == kafka.NoBroker {
			t.Error("the learner does not know who leads")
		}
	})
}
