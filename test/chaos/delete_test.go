package chaos_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// TestDeletedTopicStaysDeleted kills the broker while it deletes a topic, or right
// after it said that it had, again and again under load. A topic whose deletion was
// acknowledged stays deleted, through a second kill as well, and its files go. One
// whose deletion was not is gone or whole. The others lose nothing, nothing is
// reported, the name can be used again, and the offsets that a group had in it go.
func TestDeletedTopicStaysDeleted(t *testing.T) {
	b := harness.Start(t, harness.Binary(t), t.TempDir(),
		"--set", "log.flush.offset.checkpoint.interval.ms=200", "--set", "auto.create.topics.enable=false")
	l := startLoad(t, b.Addr, "kept", 3, 1)
	n, gone := rounds(t, 8), 0
	for i := range n {
		id := fill(t, b.Addr, "doomed", 40)
		told := deleteAndKill(t, b, "doomed", time.Duration(i%6)*time.Millisecond)
		b.Restart()
		there := isThere(t, b.Addr, "doomed")
		switch {
		case there && told:
			t.Fatalf("round %d: the deleted topic is there again", i)
		case there:
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if got := len(readRecords(ctx, t, []string{b.Addr}, "doomed")); got != 40 {
				t.Errorf("round %d: a topic that was not deleted has %d records of 40", i, got)
			}
			cancel()
			if !deleteTopic(t.Context(), b.Addr, "doomed") {
				t.Fatalf("round %d: the topic cannot be deleted", i)
			}
		default:
			gone++
		}
		if i%3 == 0 { // Before anybody has tidied up.
			b.Kill()
			b.Restart()
			if isThere(t, b.Addr, "doomed") {
				t.Fatalf("round %d: the deleted topic came back at the second start", i)
			}
		}
		awaitNoFiles(t, b, id)
		awaitNoOffsets(t, b.Addr, "readers")
		l.awaitMore(20)
	}
	l.end()
	checked := l.verify()
	b.Kill()
	b.Restart()
	l.verify()
	for line := range strings.Lines(b.Log()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "corrupt") || strings.Contains(line, "quarantine") {
			t.Errorf("reported: %s", line)
		}
	}
	t.Logf("%d topics deleted, %d of them before the kill; %d acknowledged records of the other checked", n, gone, checked)
}

// fill creates a topic with records in three partitions and returns its id as the
// names of its files have it.
func fill(t *testing.T, addr, topic string, records int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF(), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	created, err := kadm.NewClient(cl).CreateTopic(ctx, 3, 1, nil, topic)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("record-", i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	offsets := kadm.Offsets{}
	for p := range int32(3) {
		offsets.Add(kadm.Offset{Topic: topic, Partition: p, At: 1, LeaderEpoch: -1})
	}
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(created.ID[:])
}

// deleteAndKill asks for the deletion, kills the broker after a time or as soon as
// it has answered, and reports whether it had.
func deleteAndKill(t *testing.T, b *harness.Broker, topic string, after time.Duration) (told bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan bool, 1)
	go func() { answer <- deleteTopic(ctx, b.Addr, topic) }() // Ends with the broker.
	if after == 0 {
		told = <-answer
		b.Kill()
		return told
	}
	<-time.After(after)
	b.Kill()
	cancel()
	return <-answer
}

// deleteTopic reports whether the broker said that the topic is deleted.
func deleteTopic(ctx context.Context, addr, topic string) bool {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF(), kgo.RequestRetries(0))
	if err != nil {
		return false
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).DeleteTopic(ctx, topic)
	return err == nil
}

// isThere reports whether the broker knows a topic.
func isThere(t *testing.T, addr, topic string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	all, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all.Has(topic)
}

// awaitNoOffsets waits until a group has no offsets any more.
func awaitNoOffsets(t *testing.T, addr, group string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for {
		left, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
		if err != nil {
			t.Fatalf("offsets of %s: %v", group, err)
		}
		if len(left) == 0 {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// awaitNoFiles waits until no file of a topic is left.
func awaitNoFiles(t *testing.T, b *harness.Broker, id string) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		left, err := filepath.Glob(filepath.Join(b.DataDir, "topics", id+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		aside, err := filepath.Glob(filepath.Join(b.DataDir, "quarantine", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(aside) > 0 {
			t.Fatalf("put aside: %v", aside)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			entries, _ := os.ReadDir(left[0])
			t.Fatalf("files of a deleted topic are still there: %v %v", left, entries)
		}
		<-time.After(5 * time.Millisecond)
	}
}
