package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

type logDump struct {
	*app
	topics     []string
	partitions []int32
	from       int64
	count      int64
	records    bool
	format     string
	print      recordPrinter
	shown      int64
}

// dumpedBatch is a batch as log dump --json shows it, one a line.
type dumpedBatch struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	Segment       int64  `json:"segment"`
	Position      int64  `json:"position"`
	BaseOffset    int64  `json:"base_offset"`
	LastOffset    int64  `json:"last_offset"`
	Records       int32  `json:"records"`
	Bytes         int    `json:"bytes"`
	Codec         string `json:"codec"`
	MaxTimestamp  int64  `json:"max_timestamp_ms"`
	LeaderEpoch   int32  `json:"leader_epoch"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	BaseSequence  int32  `json:"base_sequence"`
	Flags         string `json:"flags"`
	CRC           string `json:"crc"` // "ok" or what is wrong.
}

func newLogDump(a *app) *cobra.Command {
	d := &logDump{app: a}
	cmd := &cobra.Command{
		Use:   "dump [PATH…]",
		Short: "Print the batches or the records in segment files",
		Long: "Print the batches in segment files, or with --records the records in them.\n\n" +
			logPathHelp + "\n\n" +
			columnsHelp("topic", "partition", "segment", "position", "base offset", "last offset", "records",
				"bytes",
				"codec", "greatest timestamp in ms", "leader epoch", "producer id", "producer epoch",
				"base sequence", "flags", "crc") +
			"\n" + jsonHelp[dumpedBatch]() + " One a line.\n\n" + formatHelp,
		RunE: func(_ *cobra.Command, args []string) error { return d.run(args) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&d.topics, "topic", "t", nil, "only these `topics`, by name or id")
	partitionsFlag(f, &d.partitions, "only these partition `numbers`")
	f.Int64VarP(&d.from, "from", "s", 0, "begin at this `offset`")
	f.Int64VarP(&d.count, "count", "n", 0, "end after this `number` of batches or records")
	f.BoolVarP(&d.records, "records", "r", false, "print records, not batches")
	f.StringVarP(&d.format, "format", "f", "", "how to print a record, `json or a text with {fields}`")
	return cmd
}

func (d *logDump) run(paths []string) error {
	if err := d.choosePrinter(); err != nil {
		return err
	}
	all, err := d.findLogs(paths, d.topics, d.partitions)
	if err != nil {
		return err
	}
	broken := false
	for _, p := range all {
		for i, s := range p.segments {
			if i+1 < len(p.segments) && p.segments[i+1].base <= kafka.Offset(d.from) {
				continue
			}
			err := d.dumpSegment(p, s)
			var at *brokenError
			switch {
			case errors.Is(err, errEnough):
				return d.out.flush()
			case errors.As(err, &at):
				broken = true
				if err := d.out.flush(); err != nil {
					return err
				}
				d.out.warn("%s %v; %s are left", s.path, at, plural(at.left, "byte"))
			case err != nil:
				return failf("%s: %w", s.path, err)
			}
		}
	}
	if err := d.out.flush(); err != nil {
		return err
	}
	if broken {
		return silent(exitUnsound)
	}
	return nil
}

func (d *logDump) choosePrinter() error {
	d.records = d.records || d.format != ""
	if d.format == "json" || d.format == "" && d.out.form == formJSON {
		d.print = appendRecordJSON
		return nil
	}
	f := personFormat(d.out.paint)
	if d.format != "" || d.out.form != formTable {
		text := d.format
		if text == "" {
			text = `{topic}\t{partition}\t{offset}\t{timestamp}\t{key}\t{value}`
		}
		var err error
		if f, err = parseFormat(text, d.out.terminal); err != nil {
			return err
		}
	}
	d.print = f.delimited([]byte{'\n'})
	return nil
}

func (d *logDump) dumpSegment(p *logPartition, s logSegment) error {
	if d.out.form == formTable {
		d.out.printf("%s\n", d.out.paint.bold(fmt.Sprintf("%s  %s", p, s.path)))
	}
	for b, err := range batchesOf(s.path) {
		if err != nil {
			return err
		}
		if b.LastOffset() < kafka.Offset(d.from) {
			continue
		}
		show := d.dumpBatch
		if d.records {
			show = d.dumpRecords
		}
		if err := show(p, s, b); err != nil {
			return err
		}
	}
	return nil
}

func (d *logDump) dumpBatch(p *logPartition, s logSegment, b storedBatch) error {
	row := dumpedBatch{
		Topic: p.topic, Partition: p.partition, Segment: int64(s.base), Position: b.position,
		BaseOffset: int64(b.BaseOffset()), LastOffset: int64(b.LastOffset()), Records: b.RecordCount(),
		Bytes: b.Size(),
		Codec: b.Codec().String(), MaxTimestamp: b.MaxTimestamp(), LeaderEpoch: int32(b.LeaderEpoch()),
		ProducerID: int64(b.ProducerID()), ProducerEpoch: int16(b.ProducerEpoch()),
		BaseSequence: b.BaseSequence(),
		Flags:        batchFlags(b.Batch), CRC: "ok",
	}
	if err := b.CheckCRC(); err != nil {
		row.CRC = err.Error()
	}
	switch d.out.form {
	case formJSON:
		if err := d.out.jsonLine(row); err != nil {
			return err
		}
	case formPlain:
		t := newTable()
		t.add(row.Topic, row.Partition, row.Segment, row.Position, row.BaseOffset, row.LastOffset,
			row.Records, row.Bytes,
			row.Codec, row.MaxTimestamp, row.LeaderEpoch, row.ProducerID, row.ProducerEpoch,
			row.BaseSequence, orDash(row.Flags), row.CRC)
		t.lines(d.out.stdout)
	case formTable:
		d.out.printf("%s\n", d.personBatch(row))
	}
	return d.counted(1)
}

// personBatch is a batch in a line for people.
func (d *logDump) personBatch(b dumpedBatch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "  %s  at %d, %s, %s", d.out.paint.cyan(fmt.Sprintf("%d-%d", b.BaseOffset,
		b.LastOffset)), b.Position,
		plural(b.Records, "record"), byteSize(int64(b.Bytes)))
	if b.Codec != "none" {
		s.WriteString(", " + b.Codec)
	}
	fmt.Fprintf(&s, ", %s, leader epoch %d", timestamp(time.UnixMilli(b.MaxTimestamp)), b.LeaderEpoch)
	if b.ProducerID >= 0 {
		fmt.Fprintf(&s, ", producer %d/%d from sequence %d", b.ProducerID, b.ProducerEpoch,
			b.BaseSequence)
	}
	if b.Flags != "" {
		s.WriteString(", " + b.Flags)
	}
	if b.CRC != "ok" {
		s.WriteString(", " + d.out.paint.red(b.CRC))
	}
	return s.String()
}

func batchFlags(b record.Batch) string {
	var flags []string
	if b.IsTransactional() {
		flags = append(flags, "transactional")
	}
	if b.IsControl() {
		flags = append(flags, "control")
		if m, ok, err := b.EndMarker(); err == nil && ok {
			flags = append(flags, endOfTransaction(m))
		}
	}
	if b.TimestampType() == record.LogAppendTime {
		flags = append(flags, "log-append-time")
	}
	return strings.Join(flags, ",")
}

// endOfTransaction is the word for what a marker says.
func endOfTransaction(m record.EndMarker) string {
	if m.Commit {
		return "commit"
	}
	return "abort"
}

// dumpRecords prints the records of a batch. The marker at the end of a transaction is
// no record of the topic.
func (d *logDump) dumpRecords(p *logPartition, _ logSegment, b storedBatch) error {
	if err := b.CheckCRC(); err != nil {
		return &brokenError{position: b.position, left: int64(b.Size()), reason: err.Error()}
	}
	if b.IsControl() {
		return nil
	}
	var line []byte
	for r, err := range b.Records(maxRecordBytes) {
		if err != nil {
			return &brokenError{position: b.position, left: int64(b.Size()), reason: err.Error()}
		}
		if r.Offset < kafka.Offset(d.from) {
			continue
		}
		if line, err = d.print(line[:0], clientRecord(p, r)); err != nil {
			return err
		}
		_, _ = d.out.stdout.Write(line) // The writer keeps its error for flush.
		if err := d.counted(1); err != nil {
			return err
		}
	}
	return nil
}

// clientRecord is a stored record as the formats take it.
func clientRecord(p *logPartition, r record.Record) *kgo.Record {
	c := &kgo.Record{
		Topic: p.topic, Partition: p.partition, Offset: int64(r.Offset),
		Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return c
}

// counted takes note of what was shown and returns errEnough after the last.
func (d *logDump) counted(n int64) error {
	d.shown += n
	if d.count > 0 && d.shown >= d.count {
		return errEnough
	}
	return nil
}
