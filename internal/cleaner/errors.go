package cleaner

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// TooManyKeysError says that one batch has more records than the map of keys
// may hold.
type TooManyKeysError struct {
	Offset  kafka.Offset // Of the batch.
	Records int32
	Limit   int // Of the map.
}

// Error implements error.
func (e *TooManyKeysError) Error() string {
	return fmt.Sprintf("the batch at offset %d has %d records and the map of keys takes %d: "+
		"raise log.cleaner.dedupe.buffer.size and restart", e.Offset, e.Records, e.Limit)
}

// isUncleanable tells whether trying again would find the same.
func isUncleanable(err error) bool {
	var corrupt *commitlog.CorruptionError
	var invalid *record.InvalidError
	var keys *TooManyKeysError
	return errors.As(err, &corrupt) || errors.As(err, &invalid) || errors.As(err, &keys)
}
