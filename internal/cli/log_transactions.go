package cli

import (
	"encoding/binary"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// txnEntryBytes is an entry of Kafka's index of aborted transactions: version int16,
// then producer id, first offset, marker's offset and last stable offset, int64 each.
const txnEntryBytes = 34

// txnCheck is what the batches say of transactions.
type txnCheck struct {
	open map[kafka.ProducerID]kafka.Offset // Where the open ones begin.
	// aborts are the markers of aborted transactions in the segment at hand; of which
	// records were seen if true.
	aborts map[kafka.Offset]bool
}

func (c *txnCheck) batch(b record.Batch) {
	switch {
	case !b.IsTransactional():
	case !b.IsControl():
		if _, known := c.open[b.ProducerID()]; !known {
			if c.open == nil {
				c.open = map[kafka.ProducerID]kafka.Offset{}
			}
			c.open[b.ProducerID()] = b.BaseOffset()
		}
	default:
		m, ok, err := b.EndMarker()
		if !ok || err != nil {
			return
		}
		_, seen := c.open[b.ProducerID()]
		delete(c.open, b.ProducerID())
		if !m.Commit {
			if c.aborts == nil {
				c.aborts = map[kafka.Offset]bool{}
			}
			c.aborts[b.BaseOffset()] = seen
		}
	}
}

// txnIndex checks that the index has every aborted transaction that ends in a
// segment, and no other. What the active segment's index lacks is made anew by a start.
func (c *logCheck) txnIndex(s logSegment, active bool) error {
	aborts := c.txns.aborts
	c.txns.aborts = nil
	path := s.sibling(txnIndexSuffix)
	data, err := readIndex(path, txnEntryBytes)
	if err != nil {
		if err := c.badIndex(path, err); err != nil {
			return err
		}
	} else if len(data) == 0 {
		return nil // Left by a repair: it is made anew when it is needed.
	}
	for i := 0; i < len(data); i += txnEntryBytes {
		marker := kafka.Offset(binary.BigEndian.Uint64(data[i+18:]))
		if _, known := aborts[marker]; !known {
			c.find(severityCorrupt, path, int64(i), "no transaction was aborted at offset %d", marker)
			return nil
		}
		delete(aborts, marker)
	}
	for marker, seen := range aborts {
		if seen && !active {
			c.find(severityCorrupt, path, -1, "the transaction that was aborted at offset %d is missing", marker)
			return nil
		}
	}
	return nil
}
