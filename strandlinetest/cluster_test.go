package strandlinetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// A cluster is there in a blink.
func TestStartCluster(t *testing.T) {
	began := time.Now()
	c := strandlinetest.StartCluster(t, 3)
	up := time.Since(began)
	t.Logf("up in %v", up)
	if up > 5*time.Second { // It takes a tenth of the 500 ms; a machine may be busy.
		t.Errorf("up in %v", up)
	}
	for id := 1; id <= 3; id++ {
		if c.Node(id) == nil || c.Node(id).Addr() != c.Addrs()[id-1] {
			t.Errorf("node %d is not where clients are told", id)
		}
	}
	c.Stop(2)
	if c.Node(2) != nil {
		t.Error("a node that is stopped is there")
	}
	c.Restart(2)
	if c.Node(2).Addr() != c.Addrs()[1] {
		t.Error("a node came back elsewhere")
	}
}

// Whatever is done to a cluster, a producer and a consumer that ride through it see
// nothing of it but time.
func TestHooks(t *testing.T) {
	const topic = "orders"
	tests := map[string]func(c *strandlinetest.Cluster, r *rider){
		"stop": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.Stop(leader)
			r.awaitMore(100)
			c.Restart(leader)
		},
		"kill": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.Kill(leader)
			r.awaitMore(100)
			c.Restart(leader)
		},
		"kill the controller": func(c *strandlinetest.Cluster, r *rider) {
			controller := c.Controller()
			c.Kill(controller)
			r.awaitMore(100)
			c.Restart(controller)
		},
		"kill all": func(c *strandlinetest.Cluster, r *rider) {
			c.Kill(1, 2, 3)
			c.Restart(1, 2, 3)
		},
		"power loss of all": func(c *strandlinetest.Cluster, r *rider) {
			c.LosePower(1, 2, 3)
			c.Restart(1, 2, 3)
		},
		"wipe": func(c *strandlinetest.Cluster, r *rider) {
			victim := 1 + c.Leader(topic, 0)%3
			c.Wipe(victim)
			r.awaitMore(100)
			c.Restart(victim)
		},
		"pause": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.Pause(leader)
			r.awaitMore(100)
			c.Resume(leader)
		},
		"isolate": func(c *strandlinetest.Cluster, r *rider) {
			c.Isolate(c.Leader(topic, 0))
			r.awaitMore(100)
			c.Heal()
		},
		"cut one link": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.Cut(leader, 1+leader%3)
			r.awaitMore(100)
			c.Heal()
		},
		"cut one way": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.CutOneWay(leader, 1+leader%3)
			r.awaitMore(100)
			c.Heal()
			r.awaitMore(100)
			leader = c.Leader(topic, 0)
			c.CutOneWay(1+leader%3, leader)
			r.awaitMore(100)
			c.Heal()
			if most, gap := 10*time.Second, r.history.TakeGap(time.Now()); gap > most {
				r.t.Errorf("no acknowledgement for %v", gap)
			}
		},
		"move the leader": func(c *strandlinetest.Cluster, r *rider) {
			for range 2 {
				for id := 1; id <= 3; id++ {
					c.MoveLeader(topic, 0, id)
					if got := c.Leader(topic, 0); got != id {
						r.t.Errorf("node %d leads, not %d", got, id)
					}
					r.awaitMore(20)
				}
			}
		},
		"full disk of the leader": func(c *strandlinetest.Cluster, r *rider) {
			leader := c.Leader(topic, 0)
			c.FillDisk(leader)
			r.awaitMore(1) // From before, or from another leader.
			c.FreeDisk(leader)
		},
		"full disk of a follower": func(c *strandlinetest.Cluster, r *rider) {
			follower := 1 + c.Leader(topic, 0)%3
			c.FillDisk(follower)
			r.awaitMore(100)
			c.FreeDisk(follower)
		},
		"slow disk of a follower": func(c *strandlinetest.Cluster, r *rider) {
			follower := 1 + c.Leader(topic, 0)%3
			c.SlowDisk(follower, 20*time.Millisecond)
			r.awaitMore(100)
			c.FreeDisk(follower)
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"))
			r := ride(t, c, topic, 1)
			began := time.Now()
			fault(c, r)
			r.awaitMore(100)
			t.Logf("%v until it went on; no acknowledgement for %v", time.Since(began), r.history.TakeGap(time.Now()))
			r.check()
		})
	}
}

// A topic that a client creates by producing to it survives the loss of its leader: what
// the documentation shows works with a client as it comes.
func TestCreatedByProducing(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	send := func(value string) {
		t.Helper()
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	send("before")
	leader := c.Leader("orders", 0)
	c.Kill(leader)
	send("after")
	c.Restart(leader)
	c.AwaitInSync()
	if n := len(c.InSync("orders", 0)); n != 3 {
		t.Errorf("%d are in sync", n)
	}
}
