package broker

import (
	"fmt"
	"math"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// reportUnclean logs that this broker leads partitions without having been in sync. What
// is missing shows when a replica comes back that has it: it cuts its log, and logs the
// offsets.
func (b *Broker) reportUnclean(d metadata.Delta) {
	self := kafka.BrokerID(b.config.NodeID)
	for _, c := range d.Topics {
		if c.Old == nil || c.New == nil {
			continue
		}
		for i := range min(len(c.Old.Partitions), len(c.New.Partitions)) {
			old, p := &c.Old.Partitions[i], &c.New.Partitions[i]
			if p.Leader != self || !p.ElectedUnclean(old) {
				continue
			}
			wish := "an ElectLeaders request"
			if config.ResolveTopic(b.settings(), c.New.Config).UncleanLeaderElectionEnable {
				wish = "unclean.leader.election.enable"
			}
			log := b.log.With("topic", c.New.Name, "partition", i, "leader_epoch", p.LeaderEpoch, "by", wish,
				"were_in_sync", fmt.Sprint(old.ISR), "were_eligible", fmt.Sprint(old.Eligible))
			if replica := b.partitions.GetByID(c.New.ID, int32(i)); replica != nil {
				log = log.With("known_high_watermark", replica.HighWatermark(), "log_end", replica.Log().LogEndOffset())
			}
			log.Error("this broker leads without having been in sync: what was acknowledged above its log's end is lost")
		}
	}
}

// maxLostReported bounds the lines that one cut may log of groups' offsets.
const maxLostReported = 100

// reportLost logs which committed offsets of groups a follower's cut takes away. It is
// called before the cut, with the partition's role held: only its log may be touched.
func (b *Broker) reportLost(p *partition.Partition, from, to kafka.Offset) {
	if p.Topic() != metadata.OffsetsTopic {
		return
	}
	lost := map[string]group.Committed{} // The latest of each.
	for from < to {
		chunk, err := p.Log().Read(from, 1<<20, to, true)
		if err != nil || chunk.Size() == 0 {
			break
		}
		data, err := chunk.AppendTo(nil)
		next := chunk.NextOffset()
		chunk.Release()
		if err != nil || next <= from {
			break
		}
		collectCommitted(data, lost)
		from = next
	}
	n := 0
	for _, c := range lost {
		if n++; n > maxLostReported {
			b.log.Error("more committed offsets of groups are lost", "count", len(lost)-maxLostReported)
			break
		}
		b.log.Error("a committed offset of a group is lost: it goes back to the one before", "group", c.Group,
			"topic", c.Topic, "partition", c.Partition, "offset", c.Offset)
	}
}

func collectCommitted(data []byte, into map[string]group.Committed) {
	for len(data) > 0 {
		batch, rest, err := record.Next(data)
		if err != nil {
			return
		}
		data = rest
		if batch.IsControl() {
			continue
		}
		for r, err := range batch.Records(math.MaxInt32) {
			if err != nil {
				break
			}
			if c, ok := group.ParseCommitted(r.Key, r.Value); ok {
				into[fmt.Sprint(c.Group, "\x00", c.Topic, "\x00", c.Partition)] = c
			}
		}
	}
}
