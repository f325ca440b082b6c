package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type topicDelete struct {
	*app
	yes      bool
	ifExists bool
}

func newTopicDelete(a *app) *cobra.Command {
	d := &topicDelete{app: a}
	cmd := &cobra.Command{
		Use:     "delete TOPIC…",
		Aliases: []string{"rm"},
		Short:   "Delete topics and everything in them",
		Long: "Delete topics and everything in them. On a terminal it asks first.\n\n" +
			columnsHelp("topic") + "\nWith --json it is {deleted: a list of names}.",
		Args:              wantArgs(1, -1, "one or more topics"),
		ValidArgsFunction: a.completeTopics(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&d.ifExists, "if-exists", false, "take a topic that is not there for done")
	return cmd
}

func (d *topicDelete) run(ctx context.Context, topics []string) error {
	client, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	// No limit of time before this: somebody may think about the question.
	if err := d.confirm(d.yes, "Delete %s and every record in it?",
		strings.Join(topics, ", ")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.flags.timeout)
	defer cancel()
	adm := kadm.NewClient(client)
	responses, err := adm.DeleteTopics(ctx, topics...)
	if err != nil {
		return err
	}
	deleted := []string{}
	t := newTable("deleted topic")
	var failed []error
	for _, name := range topics {
		r := responses[name]
		switch {
		case errors.Is(r.Err, kerr.UnknownTopicOrPartition) && d.ifExists:
		case errors.Is(r.Err, kerr.UnknownTopicOrPartition):
			failed = append(failed, noTopic(ctx, adm, name))
		case r.Err != nil:
			failed = append(failed, refusal("delete topic "+name, r.Err, r.ErrMessage))
		default:
			deleted = append(deleted, name)
			t.add(name)
		}
	}
	if err := d.out.show(map[string][]string{"deleted": deleted}, t); err != nil {
		return err
	}
	return d.joined(failed)
}
