package cli

import (
	"context"
	"path"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type topicList struct {
	*app
	internal bool
}

// listedTopic is a topic as topic list shows it.
type listedTopic struct {
	Topic             string `json:"topic"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	ID                string `json:"id"`
	Internal          bool   `json:"internal"`
	// Troubled counts the partitions without a leader or with a replica that is
	// not in sync.
	Troubled int `json:"troubled_partitions"`
}

func newTopicList(a *app) *cobra.Command {
	l := &topicList{app: a}
	cmd := &cobra.Command{
		Use:     "list [PATTERN]",
		Aliases: []string{"ls"},
		Short:   "List topics",
		Long: "List topics, or those whose name matches a pattern such as 'orders-*'.\n\n" +
			resultHelp[[]listedTopic]("topic", "partitions", "replication factor", "topic id",
				"partitions that lack a leader or a replica in sync"),
		Args:              wantArgs(0, 1, "at most one pattern"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&l.internal, "internal", "i", false, "list the broker's own topics too")
	return cmd
}

func (l *topicList) run(ctx context.Context, args []string) error {
	pattern := "*"
	if len(args) > 0 {
		pattern = args[0]
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return usagef("pattern %q: %w", pattern, err)
	}
	return l.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		all, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		topics := []listedTopic{}
		for _, t := range all.Sorted() {
			match, _ := path.Match(pattern, t.Topic) // The pattern was checked.
			if match && (l.internal || !t.IsInternal) {
				topics = append(topics, describeListed(t))
			}
		}
		return l.out.show(topics, listTable(topics))
	})
}

func describeListed(t kadm.TopicDetail) listedTopic {
	row := listedTopic{
		Topic: t.Topic, Partitions: len(t.Partitions), Internal: t.IsInternal,
		ID: topicID(t.ID),
	}
	for _, p := range t.Partitions {
		row.ReplicationFactor = max(row.ReplicationFactor, len(p.Replicas))
		if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
			row.Troubled++
		}
	}
	return row
}

func listTable(topics []listedTopic) *table {
	t := newTable("topic", ">partitions", ">replicas", "id", ">troubled")
	t.empty = "There are no topics. Make one: strandline topic create NAME"
	for _, row := range topics {
		troubled := cell{text: number(int64(row.Troubled)).text}
		if row.Troubled > 0 {
			troubled.style = styleRed
		}
		t.add(cell{text: row.Topic, style: styleCyan}, number(int64(row.Partitions)),
			number(int64(row.ReplicationFactor)), cell{text: orDash(row.ID), style: styleDim}, troubled)
	}
	return t
}
