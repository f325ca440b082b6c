package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
)

// position is a place in a log as users name it: the same words for consume,
// group seek and whatever else points into partitions.
type position struct {
	kind positionKind
	n    int64 // An offset, a count of records, or milliseconds since 1970.
}

type positionKind int8

const (
	atStart positionKind = iota
	atEnd
	atOffset
	beforeEnd // The last n records of each partition.
	atTime    // The first record with that time or a later one.
)

const positionHelp = `A position is one of
  start                  the oldest record there is
  end                    behind the newest record
  1234                   that offset, in each partition
  -10                    the last ten records of each partition
  2026-05-17T09:30:00Z   the first record with that time or a later one; the date alone will do
  @1763372400000         the same in milliseconds since 1970
  90m                    the first record of the last 90 minutes (s, m, h, d)`

// parsePosition reads a position.
func parsePosition(text string, now time.Time) (position, error) {
	switch strings.ToLower(text) {
	case "start", "beginning", "earliest":
		return position{kind: atStart}, nil
	case "end", "latest":
		return position{kind: atEnd}, nil
	}
	if ms, ok := strings.CutPrefix(text, "@"); ok {
		n, err := strconv.ParseInt(ms, 10, 64)
		if err != nil || n < 0 {
			return position{}, badPosition(text)
		}
		return position{atTime, n}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 {
			if n == math.MinInt64 {
				return position{}, badPosition(text)
			}
			return position{beforeEnd, -n}, nil
		}
		return position{atOffset, n}, nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02T15:04", time.DateOnly,
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return position{atTime, t.UnixMilli()}, nil
		}
	}
	if d, ok := parseAge(text); ok {
		return position{atTime, now.Add(-d).UnixMilli()}, nil
	}
	return position{}, badPosition(text)
}

// parseAge reads a duration; days too, which time.ParseDuration does not know.
func parseAge(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

func badPosition(text string) error {
	return usagef("%q is not a position", text).
		hint("Use start, end, an offset such as 1234, -10 for the last ten, a time such as " +
			"2026-05-17T09:30:00Z, @MILLISECONDS, or an age such as 90m.")
}

// client is the position as the client library takes it.
func (p position) client() kgo.Offset {
	o := kgo.NewOffset()
	switch p.kind {
	case atStart:
		return o.AtStart()
	case atEnd:
		return o.AtEnd()
	case beforeEnd:
		return o.AtEnd().Relative(-p.n)
	case atTime:
		return o.AfterMilli(p.n)
	}
	return o.At(p.n)
}

// bounds are the first and the last offset of partitions that a reader may ask
// for. Partitions without a leader, which nobody answers for, are not among them.
type bounds struct{ start, end kadm.ListedOffsets }

// listBounds asks for the bounds of topics. The end is where a reader of
// committed records stops, or the high watermark with uncommitted.
func listBounds(
	ctx context.Context, adm *kadm.Client, uncommitted bool, topics ...string,
) (bounds, error) {
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err = exceptLeaderless(err); err != nil {
		return bounds{}, err
	}
	list := adm.ListCommittedOffsets
	if uncommitted {
		list = adm.ListEndOffsets
	}
	ends, err := list(ctx, topics...)
	if err = exceptLeaderless(err); err != nil {
		return bounds{}, err
	}
	for _, offsets := range []kadm.ListedOffsets{starts, ends} {
		if err := offsets.Error(); err != nil {
			return bounds{}, err
		}
	}
	return bounds{starts, ends}, nil
}

// exceptLeaderless returns no error where all that failed are partitions without a leader.
func exceptLeaderless(err error) error {
	var parts *kadm.ShardErrors
	if !errors.As(err, &parts) {
		return err
	}
	for _, part := range parts.Errs {
		if !errors.Is(part.Err, kerr.LeaderNotAvailable) {
			return err
		}
	}
	return nil
}

// lacking lists partitions of topics, all without ids, whose bounds are not known.
func (b bounds) lacking(m kadm.Metadata, ids []int32) (lacking []kafka.TopicPartition) {
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		_, begins := b.start.Lookup(p.Topic, p.Partition)
		_, ends := b.end.Lookup(p.Topic, p.Partition)
		if !(begins && ends) && (len(ids) == 0 || slices.Contains(ids, p.Partition)) {
			lacking = append(lacking, kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition})
		}
	})
	slices.SortFunc(lacking, kafka.TopicPartition.Compare)
	return lacking
}

// leaderPatience is how long a partition may be without a leader before it is left out:
// after a failure it has another within a second or two.
const leaderPatience = 3 * time.Second

// boundsOf asks for the bounds of partitions of topics, all without ids, and waits a while
// for leaders. It returns the partitions that have none then.
func (a *app) boundsOf(ctx context.Context, adm *kadm.Client, uncommitted bool, ids []int32, topics ...string) (
	bounds, []kafka.TopicPartition, error,
) {
	defer a.out.progress("")
	for deadline := time.Now().Add(leaderPatience); ; {
		m, err := lookup(ctx, adm, topics...)
		if err == nil {
			err = checkPartitions(m, topics, ids)
		}
		if err != nil {
			return bounds{}, nil, err
		}
		b, err := listBounds(ctx, adm, uncommitted, topics...)
		leaderless := b.lacking(m, ids)
		if err != nil || len(leaderless) == 0 || time.Now().After(deadline) {
			return b, leaderless, err
		}
		a.out.progress("waiting for a leader of " + someOf(leaderless) + " ...")
		select {
		case <-ctx.Done():
			return bounds{}, nil, ctx.Err()
		case <-time.After(leaderPatience / 20):
		}
	}
}

// checkPartitions refuses numbers of partitions that a topic does not have.
func checkPartitions(m kadm.Metadata, topics []string, ids []int32) error {
	for _, topic := range topics {
		for _, p := range ids {
			if _, ok := m.Topics[topic].Partitions[p]; !ok {
				return failf("topic %s has %s: there is no partition %d", topic,
					plural(len(m.Topics[topic].Partitions), "partition"), p).hint("Partitions count from 0.")
			}
		}
	}
	return nil
}

// noLeader is the failure of what needs all of its partitions.
func noLeader(partitions []kafka.TopicPartition) *failure {
	return failf("no leader: %s", someOf(partitions)).
		hint("Start the brokers that hold them: strandline topic describe %s. More: strandline cluster doctor",
			partitions[0].Topic)
}

// someOf names partitions, the first of them if they are many.
func someOf(partitions []kafka.TopicPartition) string {
	names := make([]string, len(partitions))
	for i, tp := range partitions {
		names[i] = tp.String()
	}
	return some(names)
}

// resolve returns the offset that p is in each partition of b, within its
// bounds.
func (p position) resolve(ctx context.Context, adm *kadm.Client, b bounds,
	topics ...string,
) (kadm.Offsets, error) {
	var times kadm.ListedOffsets
	if p.kind == atTime {
		var err error
		if times, err = adm.ListOffsetsAfterMilli(ctx, p.n, topics...); exceptLeaderless(err) != nil {
			return nil, err
		}
		if err := times.Error(); err != nil {
			return nil, err
		}
	}
	offsets := kadm.Offsets{}
	var missing error
	b.end.Each(func(end kadm.ListedOffset) {
		start, ok := b.start.Lookup(end.Topic, end.Partition)
		if !ok {
			missing = fmt.Errorf("the broker did not say where partition %d of %s starts", end.Partition,
				end.Topic)
			return
		}
		at := p.n
		switch p.kind {
		case atStart:
			at = start.Offset
		case atEnd:
			at = end.Offset
		case beforeEnd:
			at = end.Offset - p.n
		case atTime:
			found, ok := times.Lookup(end.Topic, end.Partition)
			if !ok {
				missing = fmt.Errorf("the broker did not say where the time is in partition %d of %s", end.Partition,
					end.Topic)
				return
			}
			at = found.Offset
		}
		at = max(start.Offset, min(at, end.Offset))
		offsets.AddOffset(end.Topic, end.Partition, at, -1)
	})
	return offsets, missing
}
