package api

import (
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/record"
)

// produceLimits are what a topic's configuration lets a producer send.
func produceLimits(t *config.Topic, now time.Time) record.ProduceLimits {
	return record.ProduceLimits{
		MaxBatchBytes:        int(t.MaxMessageBytes),
		MaxDecompressedBytes: int64(t.MaxDecompressedMessageBytes),
		NowMs:                now.UnixMilli(),
		TimestampBeforeMaxMs: t.MessageTimestampBeforeMaxMs,
		TimestampAfterMaxMs:  t.MessageTimestampAfterMaxMs,
		LogAppendTime:        t.LogAppendTime(),
		KeyRequired:          t.CleanupCompact,
	}
}
