package commitlog

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// The names in a data directory. Those of a log are Kafka's.
const (
	topicsDir     = "topics"
	quarantineDir = "quarantine"
	journalDir    = "journal"
	lockName      = ".lock"
	metaName      = "meta.properties"
	ballastName   = "ballast"
	epochName     = "leader-epoch-checkpoint"

	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"
	cleanedSuffix   = ".cleaned"
	swapSuffix      = ".swap"
	tempSuffix      = ".tmp"
	deletedSuffix   = ".deleted"
	cutSuffix       = ".cut"         // What a recovery cut off and put aside.
	journalSuffix   = ".journal.cut" // What the journal had of a log that could not take it.
)

// offsetDigits is the width of an offset in a file name.
const offsetDigits = 20

// LogDir returns the directory of a log, relative to the data directory.
func LogDir(id kafka.TopicIDPartition) string {
	return path.Join(topicsDir, logDirName(id))
}

func logDirName(id kafka.TopicIDPartition) string {
	return id.ID.Hex() + "-" + strconv.Itoa(int(id.Partition))
}

// parseLogDirName is the inverse of logDirName.
func parseLogDirName(name string) (kafka.TopicIDPartition, error) {
	var id kafka.TopicIDPartition
	hexID, partition, ok := strings.Cut(name, "-")
	if !ok {
		return id, fmt.Errorf("log directory %q: want topic id and partition", name)
	}
	topicID, err := kafka.ParseTopicIDHex(hexID)
	if err != nil {
		return id, fmt.Errorf("log directory %q: %w", name, err)
	}
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != partition {
		return id, fmt.Errorf("log directory %q: bad partition", name)
	}
	id = kafka.TopicIDPartition{ID: topicID, Partition: int32(n)}
	if logDirName(id) != name {
		return id, fmt.Errorf("log directory %q: want lower case", name)
	}
	return id, nil
}

// fileName returns the name of a segment's file.
func fileName(dir string, base kafka.Offset, suffix string) string {
	digits := strconv.FormatInt(int64(base), 10)
	var b strings.Builder
	b.Grow(len(dir) + 1 + offsetDigits + len(suffix))
	b.WriteString(dir)
	b.WriteByte('/')
	for i := len(digits); i < offsetDigits; i++ {
		b.WriteByte('0')
	}
	b.WriteString(digits)
	b.WriteString(suffix)
	return b.String()
}

// parseFileName splits the name of a segment's file into offset and suffix.
func parseFileName(name string) (base kafka.Offset, suffix string, ok bool) {
	if len(name) <= offsetDigits || name[offsetDigits] != '.' {
		return 0, "", false
	}
	n, err := strconv.ParseInt(name[:offsetDigits], 10, 64)
	if err != nil || n < 0 {
		return 0, "", false
	}
	return kafka.Offset(n), name[offsetDigits:], true
}
