package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/kafka"
)

// The names in a partition's directory; they are Kafka's.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	epochsName      = "leader-epoch-checkpoint"
	topicsDirName   = "topics"
	metaFileName    = "meta.properties"
	offsetDigits    = 20
)

// logPartition is a partition's files.
type logPartition struct {
	dir       string
	topic     string // Its name, or the id in hexadecimal where the name is not known.
	id        kafka.TopicID
	partition int32
	segments  []logSegment // In the order of their base offsets.
}

func (p *logPartition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

// logSegment is one .log file.
type logSegment struct {
	path string
	base kafka.Offset
}

// sibling is the path of another file of the segment.
func (s logSegment) sibling(suffix string) string {
	return strings.TrimSuffix(s.path, logSuffix) + suffix
}

// partitionsFlag adds the flag -p. Without it all partitions are meant, which
// pflag would show as a default of [].
func partitionsFlag(f *pflag.FlagSet, to *[]int32, usage string) {
	f.Int32SliceVarP(to, "partition", "p", nil, usage)
	f.Lookup("partition").DefValue = ""
}

// findLogs returns the partitions below paths, in the order of topics.
func (a *app) findLogs(
	paths []string, topics []string, partitions []int32,
) ([]*logPartition, error) {
	if len(paths) == 0 {
		paths = []string{"./strandline-data"}
	}
	var all []*logPartition
	for _, path := range paths {
		found, err := a.findLog(path)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, func(p *logPartition) bool {
		return len(topics) > 0 && !slices.Contains(topics, p.topic) &&
			!slices.Contains(topics, p.id.String()) ||
			len(partitions) > 0 && !slices.Contains(partitions, p.partition)
	})
	slices.SortFunc(all, func(x, y *logPartition) int {
		return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.partition, y.partition))
	})
	if len(all) == 0 {
		return nil, failf("no partition is there").
			hint("A topic's files appear with its first record. --topic and --partition must match, if " +
				"given.")
	}
	return all, nil
}

func (a *app) findLog(path string) ([]*logPartition, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failf("%s: there is no such file or directory", path).
			hint("Name the broker's --data-dir, a partition's directory or a .log file.")
	}
	if err != nil {
		return nil, failf("%w", err)
	}
	if !info.IsDir() {
		base, ok := segmentBase(filepath.Base(path))
		if !ok {
			return nil, failf("%s: not the name of a segment",
				path).hint("Segments are named by an offset: 00000000000000000000.log")
		}
		p := partitionOf(filepath.Dir(path))
		p.segments = []logSegment{{path, base}}
		return []*logPartition{p}, nil
	}
	if p, err := readPartitionDir(path); err != nil || len(p.segments) > 0 {
		return []*logPartition{p}, err
	}
	return a.findInDataDir(path)
}

// findInDataDir looks for partitions where ours keeps them and where Kafka does.
func (a *app) findInDataDir(path string) ([]*logPartition, error) {
	parent := path
	if info, err := os.Stat(filepath.Join(path, topicsDirName)); err == nil && info.IsDir() {
		parent = filepath.Join(path, topicsDirName)
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, failf("%w", err)
	}
	var all []*logPartition
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		p, err := readPartitionDir(filepath.Join(parent, e.Name()))
		if err != nil {
			return nil, err
		}
		if len(p.segments) > 0 {
			all = append(all, p)
		}
	}
	if parent != path {
		a.nameTopics(path, all)
	}
	return all, nil
}

// partitionOf reads the name of a partition's directory: ours begins with a topic
// id, Kafka's with the topic's name.
func partitionOf(dir string) *logPartition {
	p := &logPartition{dir: dir, topic: filepath.Base(dir), partition: -1}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return p
	}
	name := filepath.Base(abs)
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return p
	}
	n, err := strconv.ParseInt(name[cut+1:], 10, 32)
	if err != nil {
		return p
	}
	p.topic, p.partition = name[:cut], int32(n)
	if id, err := kafka.ParseTopicIDHex(p.topic); err == nil {
		p.id = id
	}
	return p
}

func readPartitionDir(dir string) (*logPartition, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, failf("%w", err)
	}
	p := partitionOf(dir)
	for _, e := range entries {
		if base, ok := segmentBase(e.Name()); ok {
			p.segments = append(p.segments, logSegment{filepath.Join(dir, e.Name()), base})
		}
	}
	slices.SortFunc(p.segments, func(x, y logSegment) int { return cmp.Compare(x.base, y.base) })
	return p, nil
}

func segmentBase(name string) (kafka.Offset, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok || len(digits) != offsetDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return kafka.Offset(n), err == nil && n >= 0
}
