package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strconv"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// EpochEntry says where a leader epoch begins.
type EpochEntry struct {
	LeaderEpoch kafka.LeaderEpoch
	StartOffset kafka.Offset
}

// epochHistory is the leader epochs of a log, oldest first.
//
//	Invariant: both leader epochs and start offsets rise strictly, but for the
//	last entry, which may begin where the log ends and hold nothing yet.
type epochHistory []EpochEntry

// latest returns the newest epoch.
func (h epochHistory) latest() kafka.LeaderEpoch {
	if len(h) == 0 {
		return kafka.NoLeaderEpoch
	}
	return h[len(h)-1].LeaderEpoch
}

// assign notes that epoch begins at start, unless it is known. An epoch that
// never got a record is replaced, by an older one too: a leader that appended
// nothing follows another, which has records of the epochs before.
func (h epochHistory) assign(epoch kafka.LeaderEpoch, start kafka.Offset) (epochHistory, bool) {
	dropped := false
	for n := len(h); n > 0 && epoch >= 0 && h[n-1].StartOffset == start && h[n-1].LeaderEpoch > epoch; n-- {
		h, dropped = h[:n-1], true
	}
	if epoch <= h.latest() || epoch < 0 {
		return h, dropped
	}
	for len(h) > 0 && h[len(h)-1].StartOffset >= start {
		h = h[:len(h)-1]
	}
	return append(h, EpochEntry{epoch, start}), true
}

// endOffset returns the largest epoch at or below the one asked for, and where
// it ends: the next epoch's start, or the log's end.
func (h epochHistory) endOffset(asked kafka.LeaderEpoch, logEnd kafka.Offset) (kafka.LeaderEpoch, kafka.Offset) {
	i := sort.Search(len(h), func(i int) bool { return h[i].LeaderEpoch > asked })
	if asked < 0 || len(h) == 0 || asked > h.latest() {
		return kafka.NoLeaderEpoch, kafka.NoOffset
	}
	if i == 0 { // Older than anything known: it ends where the history begins.
		return asked, h[0].StartOffset
	}
	end := logEnd
	if i < len(h) {
		end = h[i].StartOffset
	}
	return h[i-1].LeaderEpoch, end
}

// at returns the epoch of the record at offset.
func (h epochHistory) at(offset kafka.Offset) kafka.LeaderEpoch {
	i := sort.Search(len(h), func(i int) bool { return h[i].StartOffset > offset })
	if i == 0 {
		return kafka.NoLeaderEpoch
	}
	return h[i-1].LeaderEpoch
}

// correct moves the start of an epoch to where it is known to be: the file has no
// checksum.
func (h epochHistory) correct(known EpochEntry) {
	i := slices.IndexFunc(h, func(e EpochEntry) bool { return e.LeaderEpoch == known.LeaderEpoch })
	if i > 0 && h[i-1].StartOffset < known.StartOffset && (i+1 == len(h) || known.StartOffset < h[i+1].StartOffset) {
		h[i].StartOffset = known.StartOffset
	}
}

// truncateEnd drops the epochs that begin at or after end.
func (h epochHistory) truncateEnd(end kafka.Offset) epochHistory {
	i := sort.Search(len(h), func(i int) bool { return h[i].StartOffset >= end })
	return h[:i]
}

// truncateStart drops the epochs that end at or before start; the one that
// holds it begins there from now on.
func (h epochHistory) truncateStart(start kafka.Offset) epochHistory {
	i := sort.Search(len(h), func(i int) bool { return h[i].StartOffset > start })
	if i == 0 {
		return h
	}
	kept := slices.Clone(h[i-1:])
	kept[0].StartOffset = max(kept[0].StartOffset, start)
	return kept
}

// encode writes Kafka's leader-epoch-checkpoint: version, count, then an epoch
// and its start offset a line.
func (h epochHistory) encode() []byte {
	b := strconv.AppendInt([]byte("0\n"), int64(len(h)), 10)
	b = append(b, '\n')
	for _, e := range h {
		b = strconv.AppendInt(b, int64(e.LeaderEpoch), 10)
		b = strconv.AppendInt(append(b, ' '), int64(e.StartOffset), 10)
		b = append(b, '\n')
	}
	return b
}

// decodeEpochs is the inverse of encode.
func decodeEpochs(data []byte) (epochHistory, error) {
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(lines) < 2 || string(lines[0]) != "0" {
		return nil, errors.New("leader epochs: want version 0")
	}
	count, err := strconv.Atoi(string(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("leader epochs: %q entries announced, %d there", lines[1], len(lines)-2)
	}
	h := make(epochHistory, 0, count)
	for _, line := range lines[2:] {
		epoch, start, ok := bytes.Cut(line, []byte(" "))
		e, err1 := strconv.ParseInt(string(epoch), 10, 32)
		o, err2 := strconv.ParseInt(string(start), 10, 64)
		if !ok || err1 != nil || err2 != nil || e < 0 || o < 0 {
			return nil, fmt.Errorf("leader epochs: bad entry %q", line)
		}
		if n := len(h); n > 0 && (h[n-1].LeaderEpoch >= kafka.LeaderEpoch(e) || h[n-1].StartOffset >= kafka.Offset(o)) {
			return nil, fmt.Errorf("leader epochs: entry %q does not rise", line)
		}
		h = append(h, EpochEntry{kafka.LeaderEpoch(e), kafka.Offset(o)})
	}
	return h, nil
}

// loadEpochs reads the history of a log; a missing file is an empty history.
func loadEpochs(fsys vfs.FS, dir string) (epochHistory, error) {
	data, err := readFile(fsys, dir+"/"+epochName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeEpochs(data)
}
