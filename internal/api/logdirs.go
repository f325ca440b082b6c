package api

// DescribeLogDirs, versions 1-5: v4 total and usable bytes, v5 cordoned.

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

func (s *Services) describeLogDirs(
	_ context.Context, _ *wire.Request, req *kmsg.DescribeLogDirsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = s.LogDir
	free, total, err := s.Disk.Usage()
	if err != nil {
		dir.ErrorCode = int16(kafka.ErrKafkaStorageError)
		s.Logger.Warn("disk usage is not known", "error", err)
	}
	self := metadata.Resource{Type: metadata.BrokerResource, Name: strconv.Itoa(int(s.NodeID))}
	dir.IsCordoned = config.Cordoned(s.image().Config(self))
	dir.TotalBytes, dir.UsableBytes = int64(total), int64(free)
	for _, p := range s.replicas(req.Topics) {
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != p.Topic() {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic()
			dir.Topics = append(dir.Topics, t)
		}
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{
			Partition: p.ID().Partition, Size: p.Log().Size(),
			OffsetLag: int64(p.Log().LogEndOffset() - p.HighWatermark()),
		})
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// replicas returns the replicas on this broker that are asked for, nil standing
// for all, ordered by topic and partition.
func (s *Services) replicas(topics []kmsg.DescribeLogDirsRequestTopic) []*partition.Partition {
	asked := map[kafka.TopicPartition]bool{}
	for _, t := range topics {
		for _, i := range t.Partitions {
			asked[kafka.TopicPartition{Topic: t.Topic, Partition: i}] = true
		}
	}
	var out []*partition.Partition
	s.Partitions.All(func(p *partition.Partition) bool {
		if topics == nil || asked[kafka.TopicPartition{Topic: p.Topic(), Partition: p.ID().Partition}] {
			out = append(out, p)
		}
		return true
	})
	slices.SortFunc(out, func(a, b *partition.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.ID().Partition, b.ID().Partition))
	})
	return out
}
