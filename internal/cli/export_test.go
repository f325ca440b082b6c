package cli

import (
	"bufio"
	"bytes"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What tests of the pieces need to reach.
var (
	Visible     = visible
	Thousands   = thousands
	ByteSize    = byteSize
	MovedKeys   = movedKeys
	ParseEpochs = parseEpochs
	ReadAnswer  = readAnswer
	ParseConfig = parseConfig
)

// ParsePosition returns a position in words.
func ParsePosition(text string, now time.Time) (kind string, n int64, err error) {
	p, err := parsePosition(text, now)
	return [...]string{"start", "end", "offset", "last", "time"}[p.kind], p.n, err
}

// FormatRecord prints a record by a format.
func FormatRecord(format string, terminal bool, r *kgo.Record) (string, error) {
	f, err := parseFormat(format, terminal)
	if err != nil {
		return "", err
	}
	return string(f.append(nil, r)), nil
}

// RecordJSON prints a record as JSON.
func RecordJSON(r *kgo.Record) ([]byte, error) { return appendRecordJSON(nil, r) }

// ParseRecordJSON reads one.
func ParseRecordJSON(line []byte) (*kgo.Record, error) { return parseRecordJSON(line, false) }

// ReadLines cuts a stream into lines, as produce does.
func ReadLines(r io.Reader) ([]string, error) {
	l := newLineReader(r, '\n')
	var lines [][]byte
	for {
		line, err := l.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	texts := make([]string, len(lines)) // Copied last: a line must not change under its owner.
	for i, line := range lines {
		texts[i] = string(line)
	}
	return texts, nil
}

// Histogram is a histogram.
type Histogram struct{ h histogram }

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h.h.add(d) }

// Quantile returns a quantile.
func (h *Histogram) Quantile(q float64) time.Duration { return h.h.quantile(q) }

// Table prints rows in both forms.
func Table(names []string, rows [][]string) (aligned, plain string) {
	t := newTable(names...)
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, c := range row {
			cells[i] = c
		}
		t.add(cells...)
	}
	print := func(p func(*bufio.Writer)) string {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		p(w)
		_ = w.Flush() // A buffer takes everything.
		return b.String()
	}
	return print(func(w *bufio.Writer) { t.align(w, false) }), print(t.lines)
}

// Batches walks over a segment's bytes and returns the base offsets, and why it
// ended.
func Batches(segment []byte) (offsets []int64, err error) {
	walkBatches(bytes.NewReader(segment), int64(len(segment)), func(b storedBatch, e error) bool {
		if e != nil {
			err = e
			return false
		}
		offsets = append(offsets, int64(b.BaseOffset()))
		return true
	})
	return offsets, err
}

// HottestKey is the key that the doctor finds in a partition, and its share, where keyAt
// is the key of each record.
func HottestKey(start, seen, end int64, keyAt func(offset int64) string) (key string, share float64) {
	var records []*kgo.Record
	h := hotPartition{start: start, seen: seen, end: end}
	for _, s := range h.places() {
		for at := s.from; at < s.to; at++ {
			records = append(records, &kgo.Record{Key: []byte(keyAt(at)), Value: []byte("value"), Offset: at})
		}
	}
	s := sampleOf(records)
	return string(s.key), s.share()
}
