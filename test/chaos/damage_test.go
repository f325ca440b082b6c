package chaos_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// TestDamagedEndIsFetchedAgain: a file of a broker of three is cut while it is down. It
// has what is missing from the others by itself.
func TestDamagedEndIsFetchedAgain(t *testing.T) {
	c, l := startClusterLoad(t, "damaged")
	l.awaitMore(2000)
	hurt := c.Brokers[2]
	hurt.Stop() // In order, so that the journal heals nothing.
	file := largestLog(t, hurt.DataDir)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	hurt.Restart()
	eventually(t, "its end is not fetched again", func() bool {
		return strings.Contains(hurt.Log(), "was cut off and is fetched again")
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eventually(t, "it is not in sync", func() bool { return allInSync(t, client, "damaged", 3) })
	c.Brokers[0].Kill()
	l.awaitMore(2000)
	l.end()
	t.Logf("%d acknowledged records checked", l.verifyRest())
}

// TestDamagedReplicasAreMended: a bit flips in each partition's log at each of three brokers,
// in different places, while they are down by turns. Each has back from the others what it
// lost, under load, and in the end all are the same.
func TestDamagedReplicasAreMended(t *testing.T) {
	c, l := startClusterLoad(t, "flipped")
	l.slow(100 * time.Microsecond) // All is read once from each broker.
	l.awaitMore(3000)
	flips := 0
	for i, percent := range []int64{20, 50, 80} {
		b := c.Brokers[i]
		b.Stop()
		flips += flipLogs(t, b, l.topicID, percent)
		b.Restart()
		l.awaitMore(500)
	}
	for id := range int32(3) {
		leadAll(t, c, "flipped", id+1)
		ctx, cancel := context.WithTimeout(t.Context(), verifyTimeout)
		t.Logf("broker %d leads, %d records were read", id+1, len(readRecords(ctx, t, l.addrs, l.topic)))
		cancel()
	}
	l.end()
	mended := 0
	eventually(t, "something is not mended", func() bool {
		mended = 0
		for _, b := range c.Brokers {
			mended += strings.Count(b.Log(), "mended from another replica")
		}
		return mended == flips
	})
	t.Logf("%d acknowledged records checked, %d of %d flips mended", l.verify(), mended, flips)
	for i, b := range c.Brokers {
		if strings.Contains(b.Log(), "quarantine") {
			t.Errorf("broker %d has put a replica aside", i+1)
		}
	}
	c.Stop()
	l.compareReplicas(c)
}

// flipLogs flips a bit at so many percent of the first segment of each partition of a topic,
// and returns how many.
func flipLogs(t *testing.T, b *harness.Broker, topicID string, percent int64) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(b.DataDir, "topics", topicID+"-*", "00000000000000000000.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no segments of topic %s: %v", topicID, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data[int64(len(data))*percent/100] ^= 1
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return len(names)
}

// leadAll has one broker lead all partitions of a topic.
func leadAll(t *testing.T, c *harness.Cluster, topic string, id int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(t.Context(), verifyTimeout)
	defer cancel()
	awaitInSync(ctx, t, c.Addrs(), topic)
	order := []int32{id, id%3 + 1, (id+1)%3 + 1}
	var req kadm.AlterPartitionAssignmentsReq
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for p := range topics[topic].Partitions {
		req.Assign(topic, p, order)
	}
	if resp, err := adm.AlterPartitionAssignments(ctx, req); err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	eventually(t, "the broker does not lead", func() bool {
		_, _ = adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
		topics, err := adm.ListTopics(ctx, topic)
		if err != nil {
			return false
		}
		for _, p := range topics[topic].Partitions {
			if p.Leader != id {
				return false
			}
		}
		return true
	})
}
