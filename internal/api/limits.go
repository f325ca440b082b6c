package api

import "github.com/strandline/strandline/internal/record"

// codecsOf are the codecs that a version of Produce may carry: zstd came with
// version 7 (KIP-110).
func codecsOf(version int16) record.CodecSet {
	if version < 7 {
		return record.NewCodecSet(record.CodecNone, record.CodecGzip, record.CodecSnappy, record.CodecLZ4)
	}
	return record.CodecSet(0) // All.
}
