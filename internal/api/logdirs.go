package api

// DescribeLogDirs, versions 1-5: v4 total and usable bytes, v5 cordoned.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
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
	dir.TotalBytes, dir.UsableBytes = int64(total), int64(free)
	byTopic := map[string]int{}
	s.Partitions.All(func(p *partition.Partition) bool {
		if !listed(req.Topics, p.Topic(), p.ID().Partition) {
			return true
		}
		i, ok := byTopic[p.Topic()]
		if !ok {
			i = len(dir.Topics)
			byTopic[p.Topic()] = i
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic()
			dir.Topics = append(dir.Topics, t)
		}
		dir.Topics[i].Partitions = append(dir.Topics[i].Partitions,
			kmsg.DescribeLogDirsResponseDirTopicPartition{
				Partition: p.ID().Partition, Size: p.Log().Size(),
				OffsetLag: int64(p.Log().LogEndOffset() - p.HighWatermark()),
			})
		return true
	})
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}
