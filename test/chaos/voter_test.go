package chaos_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestWipedVoterIsReplaced: a broker comes back with an empty directory under its old
// number. It is refused as a voter, in one line that says what to run; that done, it
// votes again and gets its replicas, and nobody else was stopped or noticed.
func TestWipedVoterIsReplaced(t *testing.T) {
	c, l := startClusterLoad(t, "wiped")
	l.awaitMore(1000)
	wiped := c.Brokers[2]
	wiped.Kill()
	if err := os.RemoveAll(wiped.DataDir); err != nil {
		t.Fatal(err)
	}
	wiped.Restart()
	const line = "strandline cluster remove-voter 3 && strandline cluster add 3"
	eventually(t, "no line says what to run", func() bool {
		return strings.Contains(c.Brokers[0].Log()+c.Brokers[1].Log(), line)
	})
	l.awaitMore(1000)

	client, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers[0].Addr, c.Brokers[1].Addr), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before, _ := votersOf(t, client)
	remove := kmsg.NewPtrRemoveRaftVoterRequest()
	remove.VoterID, remove.VoterDirectoryID = 3, before[3]
	if resp, err := remove.RequestWith(t.Context(), client); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("remove the voter: %+v, %v", resp, err)
	}
	var directory [16]byte
	eventually(t, "it does not follow the quorum", func() bool {
		_, learners := votersOf(t, client)
		directory = learners[3]
		return directory != [16]byte{}
	})
	add := kmsg.NewPtrAddRaftVoterRequest()
	add.VoterID, add.VoterDirectoryID, add.TimeoutMillis = 3, directory, 30_000
	if resp, err := add.RequestWith(t.Context(), client); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("add the voter: %+v, %v", resp, err)
	}
	if after, _ := votersOf(t, client); after[3] != directory || directory == before[3] || len(after) != 3 {
		t.Fatalf("voters %v, before %v", after, before)
	}
	eventually(t, "it is not in sync", func() bool { return allInSync(t, client, "wiped", 3) })
	l.awaitMore(1000)
	c.Brokers[0].Kill() // Its vote counts: with it two of three are there.
	l.awaitMore(2000)
	l.end()
	t.Logf("%d acknowledged records checked", l.verifyRest())
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// votersOf returns the directories of voters and learners.
func votersOf(t *testing.T, client *kgo.Client) (voters, learners map[int32][16]byte) {
	t.Helper()
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, client)
	voters, learners = map[int32][16]byte{}, map[int32][16]byte{}
	if err != nil || resp.ErrorCode != 0 {
		return voters, learners // A new leader is being elected; ask again.
	}
	for _, p := range resp.Topics[0].Partitions {
		for _, v := range p.CurrentVoters {
			voters[v.ReplicaID] = v.ReplicaDirectoryID
		}
		for _, o := range p.Observers {
			learners[o.ReplicaID] = o.ReplicaDirectoryID
		}
	}
	return voters, learners
}

// allInSync reports whether every partition of a topic has n replicas in sync.
func allInSync(t *testing.T, client *kgo.Client, topic string, n int) bool {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || len(resp.Topics) != 1 {
		return false
	}
	for _, p := range resp.Topics[0].Partitions {
		if len(p.ISR) != n {
			return false
		}
	}
	return len(resp.Topics[0].Partitions) > 0
}

// largestLog returns the path of the largest segment in a data directory.
func largestLog(t *testing.T, dir string) string {
	t.Helper()
	var path string
	var size int64
	err := filepath.WalkDir(filepath.Join(dir, "topics"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".log" {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() > size {
			path, size = name, info.Size()
		}
		return nil
	})
	if err != nil || path == "" {
		t.Fatalf("no segment in %s: %v", dir, err)
	}
	return path
}
