package api

import (
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// codeOf and messageOf are what clients are told: see package refusal, which is
// the one place that knows.
func codeOf(err error) kafka.Code { return refusal.CodeOf(err) }

func messageOf(err error) string { return refusal.MessageOf(err) }

// produceError returns what a producer is told: code, message, and the index of
// the offending record or -1. Not every producer knows of leader epochs: to librdkafka it is
// the end of a batch if one is over.
func produceError(err error) (kafka.Code, string, int32) {
	code := codeOf(err)
	if code == kafka.ErrFencedLeaderEpoch || code == kafka.ErrUnknownLeaderEpoch {
		code = kafka.ErrNotLeaderOrFollower
	}
	return code, messageOf(err), refusal.RecordOf(err)
}

// fetchError returns the code a reader is told.
func fetchError(err error) kafka.Code { return codeOf(err) }
