package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// The entries of the indexes, as Kafka has them: an offset relative to the
// segment's base and a position; a timestamp and a relative offset.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
)

// offsetIndex checks that every entry points to the batch with its offset. A
// missing or shorter index is no finding: it is made anew when it is needed.
func (c *logCheck) offsetIndex(s logSegment, positions map[int64]offsetRange) error {
	path := s.sibling(indexSuffix)
	data, err := readIndex(path, offsetEntryBytes)
	if err != nil {
		return c.badIndex(path, err)
	}
	last := int64(-1)
	for i := 0; i < len(data); i += offsetEntryBytes {
		offset := s.base + kafka.Offset(binary.BigEndian.Uint32(data[i:]))
		position := int64(binary.BigEndian.Uint32(data[i+4:]))
		r, ok := positions[position]
		switch {
		case position <= last && i > 0:
			c.find(severityCorrupt, path, int64(i), "position %d comes after %d", position, last)
			return nil
		case !ok:
			c.find(severityCorrupt, path, int64(i), "no batch begins at position %d", position)
			return nil
		case offset < r.base || offset > r.last:
			c.find(severityCorrupt, path, int64(i), "offset %d points to the batch of %d to %d", offset,
				r.base, r.last)
			return nil
		}
		last = position
	}
	return nil
}

// timeIndex checks that times and offsets rise and stay within the log.
func (c *logCheck) timeIndex(s logSegment) error {
	path := s.sibling(timeIndexSuffix)
	data, err := readIndex(path, timeEntryBytes)
	if err != nil {
		return c.badIndex(path, err)
	}
	lastTime, lastOffset := int64(-1), s.base
	for i := 0; i < len(data); i += timeEntryBytes {
		at := int64(binary.BigEndian.Uint64(data[i:]))
		offset := s.base + kafka.Offset(binary.BigEndian.Uint32(data[i+8:]))
		switch {
		case at < lastTime || offset < lastOffset:
			c.find(severityCorrupt, path, int64(i), "time %d at offset %d comes after time %d at offset %d",
				at, offset, lastTime, lastOffset)
			return nil
		case offset >= c.log.End && c.log.End > s.base:
			c.find(severityCorrupt, path, int64(i), "offset %d is beyond the end %d", offset, c.log.End)
			return nil
		}
		lastTime, lastOffset = at, offset
	}
	return nil
}

func (c *logCheck) badIndex(path string, err error) error {
	var size indexSizeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &size):
		c.find(severityTorn, path, -1, "%v", err)
		return nil
	}
	return failf("%w", err)
}

// indexSizeError is the size of a file that is no number of entries.
type indexSizeError int64

// Error implements error.
func (e indexSizeError) Error() string {
	return fmt.Sprintf("%d bytes are no whole number of entries", int64(e))
}

// readIndex reads the entries of an index. Kafka allocates room ahead: the zeros
// at the end are none.
func readIndex(path string, entryBytes int) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data)%entryBytes != 0 {
		return nil, indexSizeError(len(data))
	}
	for len(data) > 0 && allZero(data[len(data)-entryBytes:]) {
		data = data[:len(data)-entryBytes]
	}
	return data, err
}

// parseEpochs reads Kafka's leader-epoch-checkpoint: a version, a count, and
// lines of epoch and start offset.
func parseEpochs(text string) ([]epochStart, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" || lines[1] != fmt.Sprint(len(lines)-2) {
		return nil, errors.New("not an epoch history of version 0")
	}
	var all []epochStart
	for _, line := range lines[2:] {
		var e epochStart
		if _, err := fmt.Sscanf(line, "%d %d", &e.epoch, &e.start); err != nil {
			return nil, fmt.Errorf("epoch history: line %q", line)
		}
		all = append(all, e)
	}
	return all, nil
}
