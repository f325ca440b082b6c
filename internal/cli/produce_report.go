package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxShownFailures is how many records are reported one by one.
const maxShownFailures = 10

// place is where a record comes from.
type place struct {
	input string
	line  int64 // 0 for a whole input.
	bytes []byte
}

func (p place) String() string {
	if p.line == 0 {
		return p.input
	}
	return fmt.Sprintf("%s, line %d", p.input, p.line)
}

// produceReport counts what became of the records. Its methods may be called
// from any goroutine.
type produceReport struct {
	app   *app
	began time.Time
	words *lastWords // Set before anything is sent.

	mu       sync.Mutex
	summary  produceSummary
	firstErr error // Of a record.
	readErr  error // Why the reading stopped, if it did.
	lost     bool  // No further record has a chance.
	rejects  *bufio.Writer
	file     *os.File
	lineEnd  byte // Of the lines that were read, and so of the rejects.
}

// produceSummary is the report as --json shows it.
type produceSummary struct {
	Topic    string        `json:"topic"`
	Read     int64         `json:"read"`
	Acked    int64         `json:"acknowledged"`
	Failed   int64         `json:"failed"`
	Bytes    int64         `json:"bytes"` // Of acknowledged keys and values.
	Seconds  float64       `json:"seconds"`
	Failures []failedInput `json:"failures"` // The first few.
	Error    string        `json:"error,omitempty"`
}

type failedInput struct {
	Input string `json:"input"`
	Line  int64  `json:"line"`
	Error string `json:"error"`
}

func newProduceReport(a *app, topic, rejects string, lineEnd byte) (*produceReport, error) {
	r := &produceReport{app: a, began: a.now(), lineEnd: lineEnd}
	r.summary.Topic, r.summary.Failures = topic, []failedInput{}
	if rejects == "" {
		return r, nil
	}
	f, err := os.Create(rejects)
	if err != nil {
		return nil, usagef("--failed-to: %w", err)
	}
	r.file, r.rejects = f, bufio.NewWriter(f)
	return r, nil
}

func (r *produceReport) sent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.Read++
}

// outcome takes note of what became of a record.
func (r *produceReport) outcome(record *kgo.Record, from place, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.summary
	if err == nil {
		s.Acked++
		s.Bytes += int64(len(record.Key) + len(record.Value))
		return
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrRecordTimeout) {
		err = &noAckError{r.app.flags.timeout, r.words.of(record.Partition)}
	}
	s.Failed++
	if r.firstErr == nil {
		r.firstErr = err
	}
	r.lost = r.lost || !isOwnFault(err)
	if len(s.Failures) < maxShownFailures {
		s.Failures = append(s.Failures, failedInput{from.input, from.line, err.Error()})
		r.app.out.remark("%s: not acknowledged: %v", from, err)
	}
	if r.rejects != nil {
		_, _ = r.rejects.Write(append(from.bytes, r.lineEnd)) // finish reports what failed.
	}
}

// noAckError is that the time for an ack is over.
type noAckError struct {
	timeout time.Duration
	said    error // What a broker last answered instead; nil if none did.
}

// Error implements error.
func (e *noAckError) Error() string {
	if e.said == nil {
		return fmt.Sprintf("no ack within %v", e.timeout)
	}
	return fmt.Sprintf("no ack within %v, and the last answer was %v", e.timeout, e.said)
}

// Unwrap returns what a broker last answered.
func (e *noAckError) Unwrap() error { return e.said }

// isOwnFault reports whether the next record may fare better than this one.
func isOwnFault(err error) bool {
	for _, own := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.CorruptMessage,
	} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// fatal reports whether reading on makes no sense.
func (r *produceReport) fatal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost || r.readErr != nil
}

// stop takes note of why the reading stopped.
func (r *produceReport) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readErr = err
}

func (r *produceReport) acked() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.summary.Acked
}

func (r *produceReport) progress() {
	r.mu.Lock()
	s := r.summary
	r.mu.Unlock()
	seconds := time.Since(r.began).Seconds()
	r.app.out.progress(fmt.Sprintf("%s records sent, %s, %s records/s",
		thousands(s.Acked), byteSize(s.Bytes), thousands(int64(float64(s.Acked)/seconds))))
}

// finish prints the report. Nothing may call the other methods after it.
func (r *produceReport) finish(dials *dialWatch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.summary
	elapsed := time.Since(r.began)
	s.Seconds = elapsed.Seconds()
	failed := r.failureLocked(dials)
	if failed != nil {
		s.Error = failed.message
	}
	if r.rejects != nil {
		if err := errors.Join(r.rejects.Flush(), r.file.Close()); err != nil {
			return failf("write the failed lines: %w", err)
		}
	}
	if r.app.out.form == formJSON {
		if err := r.app.out.json(s); err != nil {
			return err
		}
	} else if s.Acked > 0 {
		r.app.out.note("Sent %s (%s) to %s in %s.", plural(s.Acked, "record"), byteSize(s.Bytes), s.Topic,
			roundDuration(elapsed))
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (r *produceReport) failureLocked(dials *dialWatch) *failure {
	s := &r.summary
	switch {
	case s.Failed > 0:
		f := failf("%s of %s not acknowledged by topic %s: %w", thousands(s.Failed),
			plural(s.Read, "record"), s.Topic, r.firstErr)
		if errors.As(r.firstErr, new(*noAckError)) {
			f.hint("Some of them may have been written all the same. To wait longer: --timeout 1m")
		}
		for _, lost := range dials.advertised() {
			f.hint("%s", lost)
		}
		var protocol *kerr.Error
		if errors.As(r.firstErr, &protocol) {
			if errors.Is(protocol, kerr.UnknownTopicOrPartition) {
				return f.hint("The broker does not create topics by itself: strandline topic create %s",
					s.Topic)
			}
			return f.forCode(protocol)
		}
		return f
	case r.readErr != nil:
		var usage *failure
		if errors.As(r.readErr, &usage) {
			return usage
		}
		return failf("stopped reading: %w", r.readErr).
			hint("What stands before it was acknowledged: %s.", plural(s.Acked, "record"))
	}
	return nil
}
