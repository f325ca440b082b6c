package strandlinetest_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/strandlinetest"
)

// flipLog stops a node in order, so that the journal heals nothing, flips a bit at so many
// percent of the first segment of orders-0, and starts it again.
func flipLog(t *testing.T, c *strandlinetest.Cluster, id int, percent int64) {
	t.Helper()
	dir := c.LogDir("orders", 0)
	c.Stop(id)
	f, err := c.Disk(id).Open(path.Join(dir, "00000000000000000000.log"), vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err = f.ReadAt(b[:], size*percent/100); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b[:], size*percent/100)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	c.Restart(id)
	c.AwaitInSync()
}

// Scenario 4: bits flip on the disks of one, two or all brokers, in different places. Nothing
// wrong is served, the partition goes on, and whoever comes to lead has back from the others
// what it lost, and nothing else is copied.
func TestFlippedBitsOfReplicas(t *testing.T) {
	for _, percents := range [][]int64{{50}, {20, 70}, {20, 50, 80}} {
		t.Run(fmt.Sprint(percents, " percent"), func(t *testing.T) {
			c := strandlinetest.StartCluster(t, 3)
			r := ride(t, c, "orders", 1)
			r.awaitMore(1000)
			for i, percent := range percents {
				flipLog(t, c, i+1, percent)
			}
			for id := 1; id <= 3; id++ {
				c.MoveLeader("orders", 0, id)
				watchFrom(t, c, r)()
				r.awaitMore(50)
			}
			c.Await("all is mended", func() bool {
				return strings.Count(c.Log(), "mended from another replica") == len(percents)
			})
			if strings.Contains(c.Log(), "quarantine") {
				t.Error("a replica was put aside")
			}
			r.check()
		})
	}
}

// The same records are lost on all disks: reads of them fail, whoever leads, and nothing
// else does.
func TestFlippedBitOfAllReplicas(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	watch(t, c, "orders", 1)
	cl := dial(t, c, kgo.DefaultProduceTopic("orders"))
	defer cl.Close()
	const n = 100
	for i := range n {
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint("value-", i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for id := 1; id <= 3; id++ {
		flipLog(t, c, id, 50)
	}
	for id := 1; id <= 3; id++ {
		c.MoveLeader("orders", 0, id)
		lost := n / 2
		ahead, err := readUpTo(t, c, 0)
		behind, _ := readUpTo(t, c, int64(lost)+2)
		if err == nil || ahead < lost-2 || ahead > lost+1 || behind < n-lost-2 {
			t.Errorf("with broker %d: %d records, then %v; %d behind", id, ahead, err, behind)
		}
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("more")).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	c.AwaitInSync()
	if strings.Contains(c.Log(), "quarantine") {
		t.Error("a replica was put aside")
	}
}

// readUpTo reads orders-0 from an offset on, up to an error or the end. It returns how many
// records there were.
func readUpTo(t *testing.T, c *strandlinetest.Cluster, from int64) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cl := dial(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(from)}}),
		kgo.KeepRetryableFetchErrors())
	defer cl.Close()
	read := 0
	for {
		fetches := cl.PollFetches(ctx)
		read += fetches.NumRecords()
		if err := fetches.Err(); err != nil {
			return read, err
		}
		if read >= 100-int(from) {
			return read, nil
		}
	}
}
