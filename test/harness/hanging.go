package harness

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// HangTransaction writes the first record of a transaction that no coordinator knows to
// the end of a partition's log, below the data directory of a broker that does not run.
// No client can do that to a broker that runs: it asks the coordinator first.
func HangTransaction(
	dataDir string, topic kadm.TopicID, partition int, producer kafka.ProducerID, value string, at time.Time,
) (kafka.Offset, error) {
	dir := filepath.Join(dataDir, "topics", fmt.Sprintf("%s-%d", hex.EncodeToString(topic[:]), partition))
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(segments) == 0 {
		return 0, fmt.Errorf("hang a transaction: no log in %s: %w", dir, errors.Join(err, os.ErrNotExist))
	}
	name := slices.Max(segments)
	log, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("hang a transaction: %w", err)
	}
	var end kafka.Offset
	var epoch kafka.LeaderEpoch
	for len(log) > 0 {
		b, rest, err := record.Next(log)
		if err != nil {
			return 0, fmt.Errorf("hang a transaction: %s: %w", name, err)
		}
		end, epoch, log = b.LastOffset()+1, b.LeaderEpoch(), rest
	}
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetBase(end, epoch)
	b.SetProducer(producer, 0, 0)
	b.SetTransactional()
	b.Append(at.UnixMilli(), nil, []byte(value), nil)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, fmt.Errorf("hang a transaction: %w", err)
	}
	_, err = f.Write(b.Build())
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("hang a transaction: %w", err)
	}
	return end, nil
}
