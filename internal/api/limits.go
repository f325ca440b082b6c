package api

import (
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/record"
)

// produceLimits are what a topic's configuration and the request's version let
// a producer send: zstd came with version 7 (KIP-110).
func produceLimits(t *config.Topic, version int16, now time.Time) record.ProduceLimits {
	var codecs record.CodecSet // All.
	if version < 7 {
		codecs = record.NewCodecSet(record.CodecNone, record.CodecGzip, record.CodecSnappy, record.CodecLZ4)
	}
	return record.ProduceLimits{
		AllowedCodecs:        codecs,
		MaxBatchBytes:        int(t.MaxMessageBytes),
		MaxDecompressedBytes: int64(t.MaxDecompressedMessageBytes),
		NowMs:                now.UnixMilli(),
		TimestampBeforeMaxMs: t.MessageTimestampBeforeMaxMs,
		TimestampAfterMaxMs:  t.MessageTimestampAfterMaxMs,
		LogAppendTime:        t.LogAppendTime(),
		KeyRequired:          t.CleanupCompact,
	}
}
