package metrics

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

func (s *Sources) collectStorage(to *scrape) {
	if j := s.Disk.Journal(); j != nil {
		st := j.Stats()
		to.counter("strandline_journal_rounds_total", float64(st.Rounds))
		to.histogram("strandline_journal_round_size_bytes", j.RoundBytes())
		to.histogram("strandline_journal_sync_duration_seconds", j.SyncTimes())
		to.counter("strandline_journal_writes_total", float64(st.JournalWrites))
		to.counter("strandline_journal_written_bytes_total", float64(st.JournalBytes))
		to.counter("strandline_journal_file_syncs_total", float64(st.FileSyncs), "reason", "round")
		to.counter("strandline_journal_file_syncs_total", float64(st.RecycleSyncs), "reason", "recycle")
		to.gauge("strandline_journal_files", float64(st.Files))
	}
	if free, total, err := s.Usage(); err == nil {
		to.gauge("strandline_disk_free_bytes", float64(free))
		to.gauge("strandline_disk_size_bytes", float64(total))
	}
	s.Events.collect(to)
	s.collectProcess(to)
}

// collectProcess tells what the kernel knows of this process' reads and writes.
func (s *Sources) collectProcess(to *scrape) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err == nil {
		to.counter("strandline_process_major_page_faults_total", float64(usage.Majflt))
	}
	text, err := s.ProcessIO()
	if err != nil {
		return // Not every system shows it.
	}
	if n, ok := ioField(text, "read_bytes"); ok {
		to.counter("strandline_process_disk_read_bytes_total", n)
	}
	if n, ok := ioField(text, "write_bytes"); ok {
		to.counter("strandline_process_disk_written_bytes_total", n)
	}
}

// ioField finds a line "name: number".
func ioField(text []byte, name string) (float64, bool) {
	for line := range bytes.Lines(text) {
		key, value, ok := bytes.Cut(line, []byte(": "))
		if ok && string(key) == name {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return float64(n), err == nil
		}
	}
	return 0, false
}
