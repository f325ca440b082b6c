package httpapi

import (
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Health is what the cluster lacks, as this broker knows it, in the answer of
// /v1/doctor.
type Health struct {
	Brokers     int     `json:"brokers"`
	BrokersDown []int32 `json:"brokers_down"`
	Partitions  int     `json:"partitions"`
	Leaderless  int     `json:"partitions_without_leader"`
	UnderMin    int     `json:"partitions_under_min_in_sync"` // acks=all is refused.
	NotInSync   int     `json:"partitions_not_in_sync"`       // A replica is not in sync.
	OneReplica  int     `json:"partitions_with_one_replica"`
	NoSpare     int     `json:"partitions_without_spare"` // As many replicas as min.insync.replicas, above one.
	Unclean     int     `json:"partitions_with_unclean_elections"`
	Moving      int     `json:"partitions_moving"`
}

// HealthOf counts what an image lacks; settings are the brokers' defaults.
func HealthOf(image *metadata.Image, settings *config.Broker) Health {
	h := Health{BrokersDown: []int32{}, Partitions: image.PartitionCount()}
	for _, b := range image.Brokers() {
		h.Brokers++
		if b.Fenced {
			h.BrokersDown = append(h.BrokersDown, int32(b.ID))
		}
	}
	for t := range image.AllTopics() {
		c := &settings.Topic
		if len(t.Config) > 0 {
			c = config.ResolveTopic(settings, t.Config)
		}
		for i := range t.Partitions {
			h.add(&t.Partitions[i], c)
		}
	}
	return h
}

func (h *Health) add(p *metadata.Partition, c *config.Topic) {
	replicas, minimum := len(p.Target()), int(c.MinInsyncReplicas)
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&h.Leaderless, p.Leader == kafka.NoBroker)
	count(&h.UnderMin, len(p.ISR) < minimum)
	count(&h.NotInSync, len(p.ISR) < len(p.Replicas))
	count(&h.OneReplica, replicas == 1)
	count(&h.NoSpare, replicas > 1 && minimum >= replicas)
	count(&h.Unclean, c.UncleanLeaderElectionEnable)
	count(&h.Moving, p.Moving())
}
