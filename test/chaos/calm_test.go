package chaos_test

import (
	"maps"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestNoFalseFailovers keeps every core of the machine busy with more than the brokers
// and their clients. Nobody fails, so no leader changes, of a partition or of the
// quorum. A round is ten seconds: sixty of them are the goal's ten minutes.
func TestNoFalseFailovers(t *testing.T) {
	c, l := startClusterLoad(t, "calm")
	l.slow(100 * time.Microsecond) // What is written in ten minutes is read once from each broker.
	l.awaitMore(1000)
	var ends []func()
	for range 2 * runtime.NumCPU() {
		burner := exec.Command("sh", "-c", "while :; do :; done")
		if err := burner.Start(); err != nil {
			t.Fatal(err)
		}
		end := sync.OnceFunc(func() {
			_ = burner.Process.Kill()
			_ = burner.Wait()
		})
		t.Cleanup(end)
		ends = append(ends, end)
	}
	before := leaderEpochs(t, c.Addrs(), "calm")
	l.takeGap()
	n := rounds(t, 2)
	for i := range n {
		<-time.After(10 * time.Second)
		if now := leaderEpochs(t, c.Addrs(), "calm"); !maps.Equal(before, now) {
			t.Errorf("round %d: leader epochs were %v and are %v", i, before, now)
			before = now
		}
	}
	t.Logf("%d rounds at full load; no acknowledgement for at most %v", n, l.takeGap())
	l.end()
	for _, end := range ends {
		end()
	}
	t.Logf("%d acknowledged records checked", l.verify())
}

// quorumEpoch stands for the quorum among partitions.
const quorumEpoch = -1

// leaderEpochs returns the leader epochs of a topic's partitions, and of the quorum.
func leaderEpochs(t *testing.T, addrs []string, topic string) map[int32]int32 {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	found, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	if err != nil || found.Error() != nil {
		t.Fatalf("metadata: %v, %v", err, found.Error())
	}
	epochs := map[int32]int32{quorumEpoch: describeQuorum(t, cl).LeaderEpoch}
	for _, p := range found[topic].Partitions {
		epochs[p.Partition] = p.LeaderEpoch
	}
	return epochs
}

// describeQuorum returns who leads the quorum.
func describeQuorum(t *testing.T, cl *kgo.Client) kmsg.DescribeQuorumResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 {
		t.Fatalf("who leads the quorum: %v, %+v", err, resp)
	}
	return resp.Topics[0].Partitions[0]
}
