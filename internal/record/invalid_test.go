package record_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/record"
)

func TestInvalidErrorSpeaks(t *testing.T) {
	for reason := record.ReasonCorrupt; reason <= record.ReasonUnsupportedCodec; reason++ {
		err := &record.InvalidError{Reason: reason, RecordIndex: record.WholeBatch, Message: "the message"}
		if got := err.Error(); got != reason.String()+": the message" || strings.HasPrefix(got, "reason") {
			t.Errorf("got %q", got)
		}
	}
	err := &record.InvalidError{Reason: record.ReasonInvalidRecord, RecordIndex: 4, Message: "why"}
	if got := err.Error(); got != "invalid record: record 4: why" {
		t.Errorf("got %q", got)
	}
}

func TestInvalidErrorWrapsTheCodecs(t *testing.T) {
	payload := compressed(record.CodecGzip, make([]byte, 100))
	batch := parseOne(t, rawBatch(record.CodecGzip, 1, payload))
	limits := testLimits()
	limits.MaxDecompressedBytes = 99
	if err := record.ValidateProduced(batch, limits); !errors.Is(err, record.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestBuilderCounts(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetTransactional()
	for range 3 {
		b.Append(0, nil, []byte("value"), nil)
	}
	if b.Count() != 3 || b.Size() <= record.HeaderSize+3*len("value") {
		t.Errorf("%d records, %d bytes", b.Count(), b.Size())
	}
	if size := b.Size(); size != len(b.Build()) {
		t.Errorf("the batch does not have the %d bytes it was said to have", size)
	}
	b.Append(0, nil, nil, nil)
	b.Reset()
	b.Append(0, nil, nil, nil)
	if batch := parseOne(t, b.Build()); batch.RecordCount() != 1 || batch.IsTransactional() {
		t.Errorf("%d records, attributes %b", batch.RecordCount(), batch.Attributes())
	}
}
