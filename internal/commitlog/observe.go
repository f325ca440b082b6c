package commitlog

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
)

// Journal returns the directory's journal for its counts; nil if there is none
// on this disk.
func (d *Dir) Journal() *journal.Journal {
	if j, ok := d.journal.(sharedJournal); ok {
		return j.Journal
	}
	return nil
}

// Corrupt reports whether damage was found below the checkpoint: the log is
// read up to there and takes no appends.
func (l *Log) Corrupt() bool { return l.corruption.Load() != nil }

// The fields of a batch's header that tell when it was made.
const (
	firstTimestampPosition = 27
	logAppendTimeBit       = 1 << 3
)

// BatchTimestamp returns the timestamp of the first record of the batch that
// reaches offset, in milliseconds: the record itself is at most the batch's span
// younger. It reads one header and checks no CRC, so it is for monitors, not for
// readers. It reports false if there is no batch at or above offset.
func (l *Log) BatchTimestamp(offset kafka.Offset) (int64, bool, error) {
	for {
		offset = max(offset, l.LogStartOffset())
		if offset >= l.LogEndOffset() || l.gone.Load() || l.Corrupt() {
			return 0, false, nil
		}
		q := segmentRead{from: offset, interval: l.options.Load().Config.IndexIntervalBytes}
		if !l.findSegment(offset, &q) {
			continue // The log changes just now.
		}
		ms, err := q.timestamp()
		next, deleted := q.whole.nextOffset, q.segment.deleted.Load()
		q.segment.release()
		switch {
		case err == nil:
			return ms, true, nil
		case deleted: // The log start has moved.
		case errors.Is(err, io.EOF) && next > offset:
			offset = next // The rest of this segment was compacted away.
		case errors.Is(err, io.EOF):
			return 0, false, nil
		default:
			return 0, false, err
		}
	}
}

// timestamp returns when the batch that reaches q.from was made.
func (q *segmentRead) timestamp() (int64, error) {
	if err := q.open(); err != nil {
		return 0, err
	}
	if d := q.confine(); d != nil {
		return 0, d.corruption(q.segment)
	}
	at, err := q.locate(q.from)
	if err != nil {
		return 0, err
	}
	w := newHeaderWalk(q.file, at.position, q.end.position)
	defer w.close()
	h, err := w.next()
	if err != nil {
		return 0, err
	}
	if h.attributes&logAppendTimeBit != 0 {
		return h.maxTimestamp, nil
	}
	header := w.buf[h.position-w.from:]
	return int64(binary.BigEndian.Uint64(header[firstTimestampPosition:])), nil
}
