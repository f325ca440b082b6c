// Package logtest has a log for tests to look into while a broker, or a process, still writes
// it. It imports nothing of ours.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Log collects what is written to it. Its zero value is empty and ready for use; it is safe for
// concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// With returns the lines that have a word in them.
func (l *Log) With(word string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}
