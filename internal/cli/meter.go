package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// meter counts what a benchmark does. What comes during the warm-up is done and
// not counted. It may be used from any goroutine.
type meter struct {
	measuring atomic.Bool
	records   atomic.Int64
	bytes     atomic.Int64
	failed    atomic.Int64
	ack       histogram
	endToEnd  histogram
	firstErr  atomic.Pointer[error]
	began     atomic.Int64 // Unix nanoseconds; 0 before the warm-up is over.
	ended     atomic.Int64
}

// begin ends the warm-up.
func (m *meter) begin() {
	m.began.Store(time.Now().UnixNano())
	m.measuring.Store(true)
}

// end ends the measuring. A later call changes nothing.
func (m *meter) end() {
	if m.measuring.Swap(false) {
		m.ended.Store(time.Now().UnixNano())
	}
}

// count counts a record of a size.
func (m *meter) count(bytes int) {
	if m.measuring.Load() {
		m.records.Add(1)
		m.bytes.Add(int64(bytes))
	}
}

// fail counts a record that failed and keeps the first reason.
func (m *meter) fail(err error) {
	m.failed.Add(1)
	m.firstErr.CompareAndSwap(nil, &err)
}

func (m *meter) elapsed() time.Duration {
	began, ended := m.began.Load(), m.ended.Load()
	if began == 0 {
		return 0
	}
	if ended == 0 {
		ended = time.Now().UnixNano()
	}
	return time.Duration(ended - began)
}

// watch ends the warm-up after its time and the measuring after the duration,
// and shows the progress. It returns when ctx ends or, if duration is not zero,
// with the measuring.
func (m *meter) watch(ctx context.Context, out *output, warmup, duration time.Duration) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	defer out.progress("")
	var warm, over <-chan time.Time
	if warmup > 0 {
		warm = time.After(warmup)
	} else {
		m.begin()
	}
	if duration > 0 {
		over = time.After(warmup + duration)
	}
	last, lastRecords, lastBytes := time.Now(), int64(0), int64(0)
	for {
		select {
		case <-ctx.Done():
			m.end()
			return
		case <-over:
			m.end()
			return
		case <-warm:
			m.begin()
			last, lastRecords, lastBytes = time.Now(), 0, 0
		case now := <-tick.C:
			records, bytes := m.records.Load(), m.bytes.Load()
			seconds := now.Sub(last).Seconds()
			out.progress(m.line(float64(records-lastRecords)/seconds, float64(bytes-lastBytes)/seconds))
			last, lastRecords, lastBytes = now, records, bytes
		}
	}
}

// line is the live line: rates since the last one, quantiles of all.
func (m *meter) line(recordRate, byteRate float64) string {
	var b strings.Builder
	if !m.measuring.Load() {
		return "warming up"
	}
	fmt.Fprintf(&b, "%3.0fs  %s records/s  %s/s", m.elapsed().Seconds(), thousands(int64(recordRate)),
		byteSize(int64(byteRate)))
	if m.ack.total.Load() > 0 {
		fmt.Fprintf(&b, "  ack p50 %s p99 %s", roundDuration(m.ack.quantile(0.5)),
			roundDuration(m.ack.quantile(0.99)))
	}
	if m.endToEnd.total.Load() > 0 {
		fmt.Fprintf(&b, "  end to end p50 %s p99 %s", roundDuration(m.endToEnd.quantile(0.5)),
			roundDuration(m.endToEnd.quantile(0.99)))
	}
	if n := m.failed.Load(); n > 0 {
		fmt.Fprintf(&b, "  %s failed", thousands(n))
	}
	return b.String()
}
