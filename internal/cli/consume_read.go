package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// pollRecords bounds what is printed between two looks at the clock.
	pollRecords = 5000
	// stuckAfter is how long a reader waits for a limit that no record reaches.
	stuckAfter = 10 * time.Second
)

// errEnough ends the reading: everything asked for was printed.
const errEnough = endOfWork("enough")

// endOfWork is an error that is none.
type endOfWork string

// Error implements error.
func (e endOfWork) Error() string { return string(e) }

// read prints records until the plan, -n, --idle or ctx ends it.
func (c *consume) read(ctx context.Context, client *kgo.Client, p *plan) error {
	printed, quiet := int64(0), time.Now()
	var line []byte
	for {
		fetches, err := c.poll(ctx, client, quiet, p)
		if err != nil {
			return err
		}
		if err := c.fetchErrors(fetches); err != nil {
			return err
		}
		if !fetches.Empty() {
			quiet = time.Now()
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if limit, ok := p.limits[r.Topic][r.Partition]; p.limits != nil && (!ok || r.Offset >= limit) {
				p.passed(r.Topic, r.Partition, r.Offset)
				continue
			}
			if !r.Attrs.IsControl() {
				if line, err = c.print(line[:0], r); err != nil {
					return err
				}
				_, _ = c.out.stdout.Write(line) // The writer keeps its error for flush.
				printed++
			}
			if c.group != "" {
				client.MarkCommitRecords(r)
			}
			if p.passed(r.Topic, r.Partition, r.Offset+1) {
				client.PauseFetchPartitions(map[string][]int32{r.Topic: {r.Partition}})
			}
			if c.count > 0 && printed == c.count {
				return c.out.flush()
			}
		}
		if err := c.out.flush(); err != nil || p.done() {
			return err
		}
		client.AllowRebalance()
	}
}

// poll waits for records. It returns errEnough when there is no more to wait for.
func (c *consume) poll(
	ctx context.Context, client *kgo.Client, quiet time.Time, p *plan,
) (kgo.Fetches, error) {
	wait, cancel := ctx, context.CancelFunc(func() {})
	deadline := quiet.Add(c.idle)
	if c.idle == 0 && p.limits != nil {
		deadline = quiet.Add(stuckAfter)
	}
	if !deadline.Equal(quiet) {
		wait, cancel = context.WithDeadline(ctx, deadline)
	}
	defer cancel()
	fetches := client.PollRecords(wait, pollRecords)
	switch {
	case ctx.Err() != nil:
		return nil, errEnough
	case wait.Err() == nil:
		return fetches, nil
	case c.idle > 0:
		return nil, errEnough
	case len(c.dials.advertised()) > 0:
		return nil, context.DeadlineExceeded // Explained with the addresses.
	}
	c.out.warn("no record came for %v, and some partitions were not read to their end: "+
		"an open transaction, stored data that is corrupt, or a broker that does not answer holds them back: "+
		"strandline doctor", stuckAfter)
	return nil, silent(exitFailed)
}

// fetchErrors reports what went wrong with partitions. It returns an error if
// going on makes no sense.
func (c *consume) fetchErrors(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		var lost *kgo.ErrDataLoss
		var session *kgo.ErrGroupSession
		switch {
		case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		case errors.As(e.Err, &lost):
			c.out.warn("%v", e.Err)
		case errors.As(e.Err, &session):
			return refusal("read as a member of group "+c.group, e.Err, "")
		default:
			return refusal("read "+e.Topic, e.Err, "")
		}
	}
	return nil
}

// leaveTimeout bounds the last commit.
const leaveTimeout = 5 * time.Second

// leave ends the reading: a member commits what was printed and leaves its group,
// also when it was interrupted.
func (c *consume) leave(ctx context.Context, client *kgo.Client, err error) error {
	if errors.Is(err, errEnough) {
		err = c.out.flush()
	}
	if c.group != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if commitErr := client.CommitMarkedOffsets(ctx); commitErr != nil {
			err = errors.Join(err, refusal("commit the offsets of group "+c.group, commitErr, ""))
		}
	}
	client.CloseAllowingRebalance()
	return err
}

// warnGone says when the offset asked for was removed already.
func (c *consume) warnGone(b bounds) {
	if c.fromPosition.kind != atOffset {
		return
	}
	b.start.Each(func(start kadm.ListedOffset) {
		if len(c.partitions) > 0 && !slices.Contains(c.partitions, start.Partition) {
			return
		}
		end, _ := b.end.Lookup(start.Topic, start.Partition)
		switch {
		case c.fromPosition.n < start.Offset:
			c.out.warn("%s-%d: offset %d is not there any more, the log starts at %d", start.Topic,
				start.Partition,
				c.fromPosition.n, start.Offset)
		case c.fromPosition.n > end.Offset:
			c.out.warn("%s-%d: offset %d is not there yet, the log ends at %d", start.Topic, start.Partition,
				c.fromPosition.n, end.Offset)
		}
	})
}

// warnExpired says when records were removed that the group has not read: the
// client would go on in silence.
func (c *consume) warnExpired(ctx context.Context, adm *kadm.Client, b bounds) error {
	committed, err := adm.FetchOffsets(ctx, c.group)
	if kerr.IsRetriable(err) {
		return nil // Perhaps the cluster's first group: joining it waits for a coordinator.
	}
	if err != nil {
		return err
	}
	committed.Each(func(o kadm.OffsetResponse) {
		start, ok := b.start.Lookup(o.Topic, o.Partition)
		if ok && o.Err == nil && o.At >= 0 && o.At < start.Offset {
			c.out.warn("%s-%d: %s between offset %d and %d were removed before group %s read them (see "+
				"retention.ms and "+
				"retention.bytes of the topic)", o.Topic, o.Partition, plural(start.Offset-o.At, "record"),
				o.At, start.Offset, c.group)
		}
	})
	return nil
}
