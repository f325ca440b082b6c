package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

type logVerify struct {
	*app
	topics     []string
	partitions []int32
	quick      bool
}

// verifiedLog is a partition as log verify shows it.
type verifiedLog struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Dir       string       `json:"directory"`
	Segments  int          `json:"segments"`
	Start     kafka.Offset `json:"start_offset"`
	End       kafka.Offset `json:"end_offset"`
	Records   int64        `json:"records"`
	Bytes     int64        `json:"bytes"`
	Findings  []logFinding `json:"findings"`
}

// logFinding is something to say about a file.
type logFinding struct {
	// Severity is "corrupt" for what no crash explains, "torn" for a write that was
	// cut short, which the next start of the broker cuts off, and "note".
	Severity string `json:"severity"`
	File     string `json:"file"`
	Position int64  `json:"position"` // In bytes; -1 for the file as a whole.
	Message  string `json:"message"`
}

const (
	severityCorrupt = "corrupt"
	severityTorn    = "torn"
	severityNote    = "note"
)

func newLogVerify(a *app) *cobra.Command {
	v := &logVerify{app: a}
	cmd := &cobra.Command{
		Use:   "verify [PATH…]",
		Short: "Check every batch, record and index of segment files",
		Long: "Check the checksum of every batch and the form of every record, that offsets and " +
			"leader epochs rise,\n" +
			"and that the indexes point to batches. The exit code is 4 if something is corrupt.\n\n" +
			"A torn end of the last segment is what a crash leaves behind, or what a running broker is " +
			"just\n" +
			"writing; the next start of the broker cuts it off, and it is not an error here.\n\n" +
			logPathHelp + "\n\n" +
			columnsHelp("topic", "partition", "segments", "start offset", "end offset", "records", "bytes",
				"result (ok, torn or corrupt)", "first finding") + "\n" + jsonHelp[[]verifiedLog](),
		RunE: func(_ *cobra.Command, args []string) error { return v.run(args) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&v.topics, "topic", "t", nil, "only these `topics`, by name or id")
	partitionsFlag(f, &v.partitions, "only these partition `numbers`")
	f.BoolVar(&v.quick, "quick", false,
		"check checksums, but do not decompress and look at each record")
	return cmd
}

func (v *logVerify) run(paths []string) error {
	all, err := v.findLogs(paths, v.topics, v.partitions)
	if err != nil {
		return err
	}
	logs := make([]*verifiedLog, 0, len(all))
	corrupt := false
	for i, p := range all {
		v.out.progress(fmt.Sprintf("%d of %d: %s", i+1, len(all), p))
		l, err := v.verify(p)
		if err != nil {
			v.out.progress("")
			return err
		}
		logs = append(logs, l)
		corrupt = corrupt || l.worst() == severityCorrupt
	}
	v.out.progress("")
	if err := v.out.show(logs, verifyTable(logs)); err != nil {
		return err
	}
	if v.out.form == formTable {
		v.printFindings(logs)
	}
	if corrupt {
		return silent(exitUnsound)
	}
	return nil
}

func (v *logVerify) verify(p *logPartition) (*verifiedLog, error) {
	l := &verifiedLog{
		Topic: p.topic, Partition: p.partition, Dir: p.dir, Segments: len(p.segments),
		Start: p.segments[0].base, End: p.segments[0].base, Findings: []logFinding{},
	}
	c := logCheck{log: l, epoch: kafka.NoLeaderEpoch, quick: v.quick}
	for i, s := range p.segments {
		if err := c.segment(s, i == len(p.segments)-1); err != nil {
			return nil, err
		}
	}
	c.epochs(filepath.Join(p.dir, epochsName))
	return l, nil
}

// logCheck goes over the segments of one partition in their order.
type logCheck struct {
	log   *verifiedLog
	epoch kafka.LeaderEpoch // Of the last batch.
	first []epochStart      // Where each epoch begins, as the batches say.
	quick bool
	d     record.Decompressor
	txns  txnCheck
}

type epochStart struct {
	epoch kafka.LeaderEpoch
	start kafka.Offset
}

func (c *logCheck) find(severity, file string, position int64, format string, args ...any) {
	c.log.Findings = append(c.log.Findings, logFinding{
		severity, filepath.Base(file), position,
		fmt.Sprintf(format, args...),
	})
}

func (c *logCheck) segment(s logSegment, last bool) error {
	if s.base < c.log.End {
		c.find(severityCorrupt, s.path, -1,
			"the segment begins at offset %d and the one before ends at %d", s.base, c.log.End)
	} else if s.base > c.log.End {
		c.find(severityNote, s.path, -1, "offsets %d to %d are not there", c.log.End, s.base-1)
	}
	c.log.End = max(c.log.End, s.base)
	positions := map[int64]offsetRange{}
	for b, err := range batchesOf(s.path) {
		var broken *brokenError
		if errors.As(err, &broken) {
			severity := severityCorrupt
			if last && broken.torn {
				severity = severityTorn
			}
			c.find(severity, s.path, broken.position, "%s; %s are left", broken.reason,
				plural(broken.left, "byte"))
			break
		}
		if err != nil {
			return failf("%s: %w", s.path, err)
		}
		c.batch(s, b)
		positions[b.position] = offsetRange{b.BaseOffset(), b.LastOffset()}
	}
	if err := c.offsetIndex(s, positions); err != nil {
		return err
	}
	if err := c.timeIndex(s); err != nil {
		return err
	}
	return c.txnIndex(s, last)
}

type offsetRange struct{ base, last kafka.Offset }

func (c *logCheck) batch(s logSegment, b storedBatch) {
	l := c.log
	l.Bytes += int64(b.Size())
	if err := b.CheckCRC(); err != nil {
		c.find(severityCorrupt, s.path, b.position, "%v", err)
		l.End = max(l.End, b.LastOffset()+1)
		return
	}
	switch {
	case b.BaseOffset() < l.End:
		c.find(severityCorrupt, s.path, b.position, "offset %d comes after offset %d", b.BaseOffset(),
			l.End-1)
	case b.BaseOffset() > l.End && l.Records > 0:
		c.find(severityNote, s.path, b.position, "offsets %d to %d are not there", l.End,
			b.BaseOffset()-1)
	}
	if b.LeaderEpoch() < c.epoch {
		c.find(severityCorrupt, s.path, b.position, "leader epoch %d comes after %d", b.LeaderEpoch(),
			c.epoch)
	} else if b.LeaderEpoch() > c.epoch {
		c.epoch = b.LeaderEpoch()
		c.first = append(c.first, epochStart{c.epoch, b.BaseOffset()})
	}
	if !c.quick {
		c.records(s, b)
	}
	c.txns.batch(b.Batch)
	l.Records += int64(b.RecordCount())
	l.End = b.LastOffset() + 1
}

// records looks at every record of a batch.
func (c *logCheck) records(s logSegment, b storedBatch) {
	count, last := int32(0), b.BaseOffset()-1
	for r, err := range c.d.Records(b.Batch, maxRecordBytes) {
		if err != nil {
			c.find(severityCorrupt, s.path, b.position, "record %d: %v", count, err)
			return
		}
		if r.Offset <= last || r.Offset > b.LastOffset() {
			c.find(severityCorrupt, s.path, b.position, "record %d has offset %d after %d", count, r.Offset,
				last)
			return
		}
		last = r.Offset
		count++
	}
	if count != b.RecordCount() {
		c.find(severityCorrupt, s.path, b.position, "%d records where %d are announced", count,
			b.RecordCount())
	}
}

// epochs compares the epoch history with what the batches say.
func (c *logCheck) epochs(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return // It is made from the batches at the next start.
	}
	stored, err := parseEpochs(string(data))
	if err != nil {
		c.find(severityCorrupt, path, -1, "%v", err)
		return
	}
	starts := map[kafka.LeaderEpoch]kafka.Offset{}
	for _, e := range stored {
		starts[e.epoch] = e.start
	}
	for _, e := range c.first {
		start, ok := starts[e.epoch]
		if ok && start > e.start {
			c.find(severityCorrupt, path, -1,
				"leader epoch %d begins at offset %d and a batch of it is at %d", e.epoch, start, e.start)
		}
	}
}

// worst is the result of a partition.
func (l *verifiedLog) worst() string {
	result := "ok"
	for _, f := range l.Findings {
		switch {
		case f.Severity == severityCorrupt:
			return severityCorrupt
		case f.Severity == severityTorn:
			result = severityTorn
		}
	}
	return result
}

func verifyTable(logs []*verifiedLog) *table {
	t := newTable("topic", ">partition", ">segments", ">start", ">end", ">records", ">size", "result",
		"first finding")
	for _, l := range logs {
		result := cell{text: l.worst(), style: styleGreen}
		switch result.text {
		case severityCorrupt:
			result.style = styleRed
		case severityTorn:
			result.style = styleYellow
		}
		first := missing()
		if len(l.Findings) > 0 {
			f := l.Findings[0]
			first = cell{text: fmt.Sprintf("%s: %s", f.File, f.Message)}
		}
		t.add(cell{text: l.Topic, style: styleCyan}, l.Partition, l.Segments, number(int64(l.Start)),
			number(int64(l.End)),
			number(l.Records), sizeCell(l.Bytes), result, first)
	}
	return t
}

func (v *logVerify) printFindings(logs []*verifiedLog) {
	for _, l := range logs {
		for i, f := range l.Findings {
			if i == maxShownFailures {
				v.out.remark("  and %d more in %s-%d; --json shows all", len(l.Findings)-i, l.Topic,
					l.Partition)
				break
			}
			where := filepath.Join(l.Dir, f.File)
			if f.Position >= 0 {
				where += fmt.Sprintf(" at %d", f.Position)
			}
			v.out.remark("%s: %s: %s", f.Severity, where, visible(f.Message))
		}
	}
}
