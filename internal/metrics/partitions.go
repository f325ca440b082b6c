package metrics

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

func number[N ~int32](n N) string { return strconv.Itoa(int(n)) }

// topicSum adds up the partitions of a topic.
type topicSum struct {
	partitions int
	sizeBytes  int64
	traffic    partition.Traffic
}

// partitionSums add up all partitions.
type partitionSums struct {
	all, led, underReplicated, underMin, offline, corrupt int
	copiedIn, copiedOut                                   uint64
	behind                                                int64
}

// collectPartitions walks the partitions once.
func (s *Sources) collectPartitions(to *scrape) {
	topics := map[string]*topicSum{}
	var sums partitionSums
	each := s.partitionSeries()
	image := s.Image()
	for _, p := range s.sorted() {
		size := p.Log().Size()
		t := topics[p.Topic()]
		if t == nil {
			t = &topicSum{}
			topics[p.Topic()] = t
		}
		t.add(size, p.Traffic())
		replicas := 0
		if mt := image.TopicByID(p.ID().ID); mt != nil && int(p.ID().Partition) < len(mt.Partitions) {
			replicas = len(mt.Partitions[p.ID().Partition].Replicas)
		}
		sums.add(p, replicas)
		if each {
			to.partition(p, size)
		}
	}
	for topic, t := range topics {
		to.topic(topic, t)
	}
	to.gauge("strandline_partitions", float64(sums.all))
	to.gauge("strandline_partitions_led", float64(sums.led))
	to.gauge("strandline_partitions_under_replicated", float64(sums.underReplicated))
	to.gauge("strandline_partitions_under_min_in_sync", float64(sums.underMin))
	to.gauge("strandline_partitions_offline", float64(sums.offline))
	to.gauge("strandline_partitions_corrupt", float64(sums.corrupt))
	to.counter("strandline_replication_received_bytes_total", float64(sums.copiedIn))
	to.counter("strandline_replication_sent_bytes_total", float64(sums.copiedOut))
	to.gauge("strandline_replication_max_lag_records", float64(sums.behind))
}

// sorted returns the partitions in the order in which people look for them.
func (s *Sources) sorted() []*partition.Partition {
	var all []*partition.Partition
	s.Partitions.All(func(p *partition.Partition) bool {
		all = append(all, p)
		return true
	})
	slices.SortFunc(all, func(a, b *partition.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.ID().Partition, b.ID().Partition))
	})
	return all
}

// partitionSeries reports whether each partition has series of its own.
func (s *Sources) partitionSeries() bool {
	if s.detail == Sums {
		return false
	}
	n := 0
	most := int(s.Settings().MetricsPartitionSeriesMax)
	s.Partitions.All(func(*partition.Partition) bool {
		n++
		return n <= most
	})
	return n <= most
}

func (t *topicSum) add(sizeBytes int64, c partition.Traffic) {
	t.partitions++
	t.sizeBytes += sizeBytes
	t.traffic.BytesIn += c.BytesIn
	t.traffic.RecordsIn += c.RecordsIn
	t.traffic.BytesOut += c.BytesOut
	t.traffic.RecordsOut += c.RecordsOut
}

func (s *partitionSums) add(p *partition.Partition, replicas int) {
	s.all++
	t := p.Traffic()
	s.copiedIn, s.copiedOut = s.copiedIn+t.CopiedIn, s.copiedOut+t.CopiedOut
	if behind, follows := p.Behind(); follows {
		s.behind = max(s.behind, behind)
	}
	if inSync, wanted, leads := p.InSync(); leads {
		s.led++
		if inSync < replicas {
			s.underReplicated++
		}
		if inSync < wanted {
			s.underMin++
		}
	}
	if p.Log().Err() != nil {
		s.offline++
	}
	if p.Log().Corrupt() {
		s.corrupt++
	}
}

func (s *scrape) topic(topic string, t *topicSum) {
	labels := pairs("topic", topic)
	count := func(name string, value uint64) {
		s.to <- &sample{desc: s.descs[name], labels: labels, value: float64(value), counter: true}
	}
	count("strandline_topic_received_bytes_total", t.traffic.BytesIn)
	count("strandline_topic_received_records_total", t.traffic.RecordsIn)
	count("strandline_topic_sent_bytes_total", t.traffic.BytesOut)
	count("strandline_topic_sent_records_total", t.traffic.RecordsOut)
	s.put("strandline_topic_partitions", float64(t.partitions), labels)
	s.put("strandline_topic_size_bytes", float64(t.sizeBytes), labels)
}

func (s *scrape) partition(p *partition.Partition, sizeBytes int64) {
	labels := labelled("partition", number(p.ID().Partition), "topic", p.Topic())
	highWatermark := p.HighWatermark() // Before the end, so that it never passes it.
	log := p.Log()
	s.series("strandline_partition_log_start_offset", float64(log.LogStartOffset()), labels)
	s.series("strandline_partition_log_end_offset", float64(log.LogEndOffset()), labels)
	s.series("strandline_partition_high_watermark", float64(highWatermark), labels)
	s.series("strandline_partition_size_bytes", float64(sizeBytes), labels)
	s.series("strandline_partition_leader_epoch", float64(p.LeaderEpoch()), labels)
}

// highWatermarkOf returns where a group's readers can read to, and where from;
// false if this broker does not lead the partition.
func (s *Sources) highWatermarkOf(
	at kafka.TopicPartition,
) (p *partition.Partition, start, end kafka.Offset, ok bool) {
	p = s.Partitions.Get(at.Topic, at.Partition)
	if p == nil || p.Leads(kafka.NoLeaderEpoch) != nil {
		return nil, 0, 0, false
	}
	return p, p.Log().LogStartOffset(), p.HighWatermark(), true
}
