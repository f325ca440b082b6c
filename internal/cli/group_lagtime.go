package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lagTimePatience bounds the search for the oldest unread records.
const lagTimePatience = 5 * time.Second

// addLagTimes reads, for each partition with a lag, the first record that the
// group has not read: its age is the lag in time. Nothing less tells a group
// that is a second behind from one that is a day behind.
func (d *groupDescribe) addLagTimes(ctx context.Context, groups []*describedGroup) error {
	for _, g := range groups {
		wanted := startOffsets{}
		rows := map[string]map[int32]*describedGroupPart{}
		for i := range g.Partitions {
			p := &g.Partitions[i]
			switch {
			case p.Lag == 0:
				p.LagSeconds = 0
			case p.Lag > 0:
				setOf(wanted, p.Topic)[p.Partition] = kgo.NewOffset().At(max(p.Committed, p.Start))
				setOf(rows, p.Topic)[p.Partition] = p
			}
		}
		if len(wanted) == 0 {
			continue
		}
		if err := d.readAges(ctx, wanted, rows); err != nil {
			return err
		}
	}
	return nil
}

func (d *groupDescribe) readAges(
	ctx context.Context, wanted startOffsets, rows map[string]map[int32]*describedGroupPart,
) error {
	client, err := d.connect(ctx, kgo.ConsumePartitions(wanted), kgo.FetchMaxPartitionBytes(1),
		kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, lagTimePatience)
	defer cancel()
	now := d.now()
	for len(rows) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // What was not found stays unknown.
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) {
				d.out.warn("the lag in time of %s-%d is not known: %v", e.Topic, e.Partition, e.Err)
			}
			forget(rows, e.Topic, e.Partition)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p := rows[r.Topic][r.Partition]
			if p == nil {
				return
			}
			p.LagSeconds = max(0, now.Sub(r.Timestamp).Seconds())
			forget(rows, r.Topic, r.Partition)
			client.PauseFetchPartitions(map[string][]int32{r.Topic: {r.Partition}})
		})
	}
	return nil
}

func forget[V any](m map[string]map[int32]V, topic string, partition int32) {
	delete(m[topic], partition)
	if len(m[topic]) == 0 {
		delete(m, topic)
	}
}

// assignedText prints an assignment as orders:0,1 users:3.
func assignedText(assigned map[string][]int32) string {
	var all []string
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		all = append(all, fmt.Sprintf("%s:%s", topic,
			joinIDs(slices.Sorted(slices.Values(assigned[topic])))))
	}
	return strings.Join(all, " ")
}
