package refusal_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
)

func TestMessageOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("x: %w", &kafka.Error{Code: kafka.ErrInvalidRecord, Message: "say it so"}), "say it so"},
		{fmt.Errorf("write: %w", syscall.ENOSPC), "the broker's disk is full"},
		{errors.New("as it is"), "as it is"},
	} {
		if got := refusal.MessageOf(c.err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestRecordOf(t *testing.T) {
	if got := refusal.RecordOf(fmt.Errorf("x: %w", &record.InvalidError{RecordIndex: 3})); got != 3 {
		t.Errorf("record %d, want 3", got)
	}
	if got := refusal.RecordOf(errors.New("x")); got != -1 {
		t.Errorf("record %d of an error about none", got)
	}
}
