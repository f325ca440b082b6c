package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const consumeLong = `Print the records of topics.

  strandline consume orders                       everything, oldest first
  strandline consume orders --from end            only what comes from now on
  strandline consume orders --from -10 -n 10      the last ten of each partition, ten in all
  strandline consume orders --from 2h --until 1h
  strandline consume orders --group billing       as a member of a group, from where it stands
  strandline consume orders --format '{offset}\t{key}\t{value:hex}'

On a terminal it goes on and waits for new records; into a pipe or a file it ends behind the
newest record there was when it began. --follow and --follow=false say otherwise. As a member of
a group it always goes on, until -n, --idle or Ctrl-C ends it.

On a terminal each line shows partition:offset, the key and the value, with control characters
escaped; elsewhere the bare value. --format and --json choose another form.

As a member of a group, records count as read once they were written out; offsets are committed
every second and when it ends.

` + positionHelp + "\n\n" + formatHelp + "\n\n" + recordJSONHelp

type consume struct {
	*app
	from, until   string
	partitions    []int32
	group         string
	format        string
	delimiter     string
	count         int64
	follow        bool
	idle          time.Duration
	isolation     string
	uncommitted   bool
	topics        []string
	fromPosition  position
	untilPosition *position // Nil where only the end of the log limits.
	print         recordPrinter
}

func newConsume(a *app) *cobra.Command {
	c := &consume{app: a}
	cmd := &cobra.Command{
		Use:               "consume TOPIC…",
		Short:             "Print records",
		Long:              consumeLong,
		Args:              wantArgs(1, -1, "one or more topics"),
		ValidArgsFunction: a.completeTopics(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.topics = args
			if !cmd.Flags().Changed("follow") {
				c.follow = c.out.terminal && c.until == ""
			}
			return c.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.from, "from", "s", "start",
		"`position` to begin at; for a group, where it has no offset yet")
	f.StringVar(&c.until, "until", "", "`position` to end at, exclusive")
	partitionsFlag(f, &c.partitions, "read these partition `numbers` only")
	f.StringVarP(&c.group, "group", "g", "", "read as a member of this `group` and commit its offsets")
	f.StringVarP(&c.format, "format", "f", "", "how to print a record, `json or a text with {fields}`")
	f.StringVar(&c.delimiter, "delimiter", `\n`, "`text` to print after each record")
	f.Int64VarP(&c.count, "count", "n", 0, "end after this `number` of records")
	f.BoolVar(&c.follow, "follow", false, "wait for new records (default on a terminal)")
	f.DurationVar(&c.idle, "idle", 0, "end when no record has come for this long")
	f.StringVar(&c.isolation, "isolation", readCommitted,
		"which records of transactions to print, by `level`: read_committed or read_uncommitted")
	f.BoolVar(&c.uncommitted, "uncommitted", false,
		"print records of open and aborted transactions too: --isolation read_uncommitted")
	cmd.MarkFlagsMutuallyExclusive("isolation", "uncommitted")
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(
		[]string{readCommitted, readUncommitted}, cobra.ShellCompDirectiveNoFileComp)) // The flag is there.
	cmd.MarkFlagsMutuallyExclusive("group", "partition")
	cmd.MarkFlagsMutuallyExclusive("group", "until")
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeGroups(-1)) // The flag is there.
	return cmd
}

func (c *consume) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if err := c.check(cmd.Flags().Changed("follow")); err != nil {
		return err
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	plan, err := c.plan(ctx, kadm.NewClient(client))
	client.Close()
	if err != nil || plan.done() {
		return err
	}
	reader, err := c.connect(ctx, plan.opts...)
	if err != nil {
		return err
	}
	err = c.read(ctx, reader, plan)
	return c.leave(ctx, reader, err)
}

// check reads the flags.
// The values of --isolation, as Kafka's tools have them.
const (
	readCommitted   = "read_committed"
	readUncommitted = "read_uncommitted"
)

func (c *consume) check(followGiven bool) error {
	var err error
	if c.fromPosition, err = parsePosition(c.from, c.now()); err != nil {
		return err
	}
	if c.until != "" {
		until, err := parsePosition(c.until, c.now())
		if err != nil {
			return err
		}
		if c.follow {
			return usagef("--follow goes on and --until ends: choose one")
		}
		c.untilPosition = &until
	}
	switch c.isolation {
	case readCommitted:
	case readUncommitted:
		c.uncommitted = true
	default:
		return usagef("--isolation %s: want %s or %s", c.isolation, readCommitted, readUncommitted)
	}
	if c.count < 0 {
		return usagef("--count %d: want a number of records", c.count)
	}
	if c.group != "" {
		if followGiven && !c.follow {
			return usagef("a member of a group does not know where to end").hint("Use --idle 5s or -n " +
				"instead of --follow=false.")
		}
		c.follow = true
	}
	return c.choosePrinter()
}

// choosePrinter decides how a record becomes bytes.
func (c *consume) choosePrinter() error {
	delimiter, err := parseDelimiter(c.delimiter)
	if err != nil {
		return err
	}
	if c.format == "json" || c.format == "" && c.out.form == formJSON {
		c.print = appendRecordJSON
		return nil
	}
	if c.format == "" && c.out.form == formTable {
		c.print = personFormat(c.out.paint).delimited(delimiter)
		return nil
	}
	text := c.format
	if text == "" {
		text = "{value}"
	}
	f, err := parseFormat(text, c.out.terminal)
	if err != nil {
		return err
	}
	c.print = f.delimited(delimiter)
	return nil
}

// plan is what a consumer reads and where it ends.
type plan struct {
	opts []kgo.Opt
	// limits are the offsets to end at, by topic and partition; partitions leave it
	// as they are done. Nil to follow for ever.
	limits map[string]map[int32]int64
}

func (p *plan) done() bool { return p.limits != nil && len(p.limits) == 0 }

// passed takes note that everything below next was read, and reports whether
// the partition is done.
func (p *plan) passed(topic string, partition int32, next int64) bool {
	limit, ok := p.limits[topic][partition]
	if !ok || next < limit {
		return false
	}
	delete(p.limits[topic], partition)
	if len(p.limits[topic]) == 0 {
		delete(p.limits, topic)
	}
	return true
}

func (c *consume) plan(ctx context.Context, adm *kadm.Client) (*plan, error) {
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	b, leaderless, err := c.boundsOf(ctx, adm, c.uncommitted, c.partitions, c.topics...)
	switch {
	case err != nil:
		return nil, err
	case len(leaderless) > 0 && !c.follow:
		return nil, noLeader(leaderless).hint("To read others only: --partition. To wait for these: --follow")
	case len(leaderless) > 0:
		c.out.warn("no leader: %s; what they hold comes when they have one", someOf(leaderless))
	}
	p := &plan{opts: c.clientOptions()}
	switch {
	case c.group != "":
		p.opts = append(p.opts, kgo.ConsumeTopics(c.topics...),
			kgo.ConsumeStartOffset(c.fromPosition.client()))
		p.opts = append(p.opts, c.groupOptions()...)
		return p, c.warnExpired(ctx, adm, b)
	case c.follow && len(c.partitions) == 0:
		// By topic, so that partitions added later are read too.
		p.opts = append(p.opts, kgo.ConsumeTopics(c.topics...),
			kgo.ConsumeStartOffset(c.fromPosition.client()))
		c.warnGone(b)
		return p, nil
	}
	c.warnGone(b)
	return p, c.planPartitions(ctx, adm, p, b)
}

// planPartitions decides for each partition where to begin and to end.
func (c *consume) planPartitions(ctx context.Context, adm *kadm.Client, p *plan, b bounds) error {
	starts, err := c.fromPosition.resolve(ctx, adm, b, c.topics...)
	if err != nil {
		return err
	}
	ends := b.end.Offsets()
	if c.untilPosition != nil {
		if ends, err = c.untilPosition.resolve(ctx, adm, b, c.topics...); err != nil {
			return err
		}
	}
	if !c.follow {
		p.limits = map[string]map[int32]int64{}
	}
	assigned := map[string]map[int32]kgo.Offset{}
	starts.Each(func(start kadm.Offset) {
		if len(c.partitions) > 0 && !slices.Contains(c.partitions, start.Partition) {
			return
		}
		end, _ := ends.Lookup(start.Topic, start.Partition)
		if !c.follow && start.At >= end.At {
			return
		}
		setOf(assigned, start.Topic)[start.Partition] = kgo.NewOffset().At(start.At)
		if !c.follow {
			setOf(p.limits, start.Topic)[start.Partition] = end.At
		}
	})
	p.opts = append(p.opts, kgo.ConsumePartitions(assigned))
	return nil
}

func setOf[V any](m map[string]map[int32]V, topic string) map[int32]V {
	if m[topic] == nil {
		m[topic] = map[int32]V{}
	}
	return m[topic]
}

// clientOptions are the options of every consumer.
func (c *consume) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{
		// Markers are not printed, but they are what the last offsets before a limit may be.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(movedWait),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if !c.uncommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

func (c *consume) groupOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(c.group),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, _ map[string][]int32) {
			if err := client.CommitMarkedOffsets(ctx); err != nil {
				c.out.warn("offsets were not committed before partitions moved: %v; their records will be "+
					"read again", err)
			}
		}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			for _, topic := range c.topics {
				if len(assigned[topic]) > 0 {
					c.out.note("Reading %s of %s.", describePartitions(assigned[topic]), topic)
				}
			}
		}),
	}
}

func describePartitions(ids []int32) string {
	slices.Sort(ids)
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	if len(ids) == 1 {
		return "partition " + texts[0]
	}
	return "partitions " + strings.Join(texts, ", ")
}
