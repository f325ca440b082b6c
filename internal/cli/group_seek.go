package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const seekLong = `Set the committed offsets of a group: where its members go on reading. The group
must have no running member.

  strandline group seek billing --to start                     read everything again
  strandline group seek billing --to 2026-05-17T09:30:00Z --topic orders
  strandline group seek billing --to end --topic orders --partition 3
  strandline group seek new --to start --topic orders          make a group before its first member

` + positionHelp

type groupSeek struct {
	*app
	to         string
	topics     []string
	partitions []int32
	dryRun     bool
}

// seekedPartition is a partition as group seek reports it.
type seekedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    int64  `json:"before"` // -1 if there was no offset.
	After     int64  `json:"after"`
}

func newGroupSeek(a *app) *cobra.Command {
	s := &groupSeek{app: a}
	cmd := &cobra.Command{
		Use:   "seek GROUP --to POSITION",
		Short: "Set where a group goes on reading",
		Long: seekLong + "\n\n" +
			resultHelp[[]seekedPartition]("topic", "partition", "offset before (- if none)", "offset now"),
		Args:              wantArgs(1, 1, "one group"),
		ValidArgsFunction: a.completeGroups(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.to, "to", "", "`position` to go to")
	f.StringSliceVarP(&s.topics, "topic", "t", nil,
		"only these `topics` (default all that the group has offsets for)")
	partitionsFlag(f, &s.partitions, "only these partition `numbers`")
	f.BoolVar(&s.dryRun, "dry-run", false, "show what would change, and change nothing")
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics(-1)) // The flag is there.
	return cmd
}

func (s *groupSeek) run(ctx context.Context, group string) error {
	if s.to == "" {
		return usagef("group seek needs --to").hint("Example: strandline group seek %s --to start", group)
	}
	to, err := parsePosition(s.to, s.now())
	if err != nil {
		return err
	}
	return s.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if err := s.checkStopped(ctx, adm, group); err != nil {
			return err
		}
		committed, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		offsets, err := s.target(ctx, adm, group, to, committed)
		if err != nil {
			return err
		}
		if !s.dryRun {
			if err := s.commit(ctx, adm, group, offsets); err != nil {
				return err
			}
		}
		return s.print(committed, offsets)
	})
}

// checkStopped refuses a group that is running: its members would overwrite
// what is set, or never look at it.
func (s *groupSeek) checkStopped(ctx context.Context, adm *kadm.Client, group string) error {
	described, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	g := described[group]
	if isNoGroup(g.Err, g.State) {
		if len(s.topics) == 0 {
			return noGroup(ctx, adm, group)
		}
		return nil // Committing makes the group.
	}
	if g.Err != nil {
		return refusal("describe group "+group, g.Err, g.ErrMessage)
	}
	if g.State != stateEmpty {
		f := failf("group %s is running (%s, %s)", group, g.State, plural(len(g.Members), "member"))
		for _, m := range g.Members {
			f.hint("member %s of client %s at %s", m.MemberID, m.ClientID, m.ClientHost)
		}
		return f.hint("Stop its members, then seek.")
	}
	return nil
}

// target returns the offsets to commit.
func (s *groupSeek) target(ctx context.Context, adm *kadm.Client, group string, to position,
	committed kadm.OffsetResponses,
) (kadm.Offsets, error) {
	topics := s.topics
	if len(topics) == 0 {
		for topic := range committed {
			topics = append(topics, topic)
		}
		slices.Sort(topics)
	}
	if len(topics) == 0 {
		return nil, failf("group %s has no offsets", group).hint("Name the topics: --topic TOPIC")
	}
	b, leaderless, err := s.boundsOf(ctx, adm, true, s.partitions, topics...)
	if err == nil && len(leaderless) > 0 {
		err = noLeader(leaderless).hint("To move the group in others only: --partition")
	}
	if err != nil {
		return nil, err
	}
	offsets, err := to.resolve(ctx, adm, b, topics...)
	if err != nil {
		return nil, err
	}
	offsets.KeepFunc(func(o kadm.Offset) bool {
		if len(s.partitions) > 0 && !slices.Contains(s.partitions, o.Partition) {
			return false
		}
		_, ok := committed.Lookup(o.Topic, o.Partition)
		return ok || len(s.topics) > 0
	})
	for _, o := range offsets.Sorted() {
		if to.kind == atOffset && o.At != to.n {
			s.out.warn("%s-%d has no offset %d: the nearest is %d", o.Topic, o.Partition, to.n, o.At)
		}
	}
	return offsets, nil
}

func (s *groupSeek) commit(
	ctx context.Context, adm *kadm.Client, group string, offsets kadm.Offsets,
) error {
	responses, err := adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return err
	}
	if err := responses.Error(); err != nil {
		return refusal("commit offsets of group "+group, err, "")
	}
	return nil
}

func (s *groupSeek) print(committed kadm.OffsetResponses, offsets kadm.Offsets) error {
	rows := []seekedPartition{}
	t := newTable("topic", ">partition", ">before", ">now")
	t.empty = "No partition was meant."
	for _, o := range offsets.Sorted() {
		before := int64(-1)
		if c, ok := committed.Lookup(o.Topic, o.Partition); ok && c.Err == nil {
			before = c.At
		}
		rows = append(rows, seekedPartition{o.Topic, o.Partition, before, o.At})
		t.add(cell{text: o.Topic, style: styleCyan}, o.Partition, known(before, number), number(o.At))
	}
	if s.dryRun {
		s.out.note("Nothing was changed: this is what would be.")
	}
	return s.out.show(rows, t)
}
