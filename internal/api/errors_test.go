package api_test

import (
	"fmt"
	"testing"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
)

// A frozen log refuses appends as a disk that failed does, and reads of what is
// damaged as what they are.
func TestCodesOfAFrozenLog(t *testing.T) {
	corrupt := &commitlog.CorruptionError{Path: "topics/x/0.log", Reason: "bad"}
	for _, test := range []struct {
		err  error
		want kafka.Code
	}{
		{fmt.Errorf("no appends: %w: %w", commitlog.ErrFrozen, corrupt), kafka.ErrKafkaStorageError},
		{fmt.Errorf("read: %w", corrupt), kafka.ErrCorruptMessage},
	} {
		if got := api.CodeOf(test.err); got != test.want {
			t.Errorf("%v: code %v, want %v", test.err, got, test.want)
		}
	}
}
