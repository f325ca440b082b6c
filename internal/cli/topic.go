package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/nearest"
)

func newTopic(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic", Aliases: []string{"topics"},
		Short: "Create, list, describe, alter and delete topics",
	}
	cmd.AddCommand(newTopicCreate(a), newTopicList(a), newTopicDescribe(a), newTopicAlter(a),
		newTopicDelete(a))
	return cmd
}

// parseConfigs reads KEY=VALUE items.
func parseConfigs(flag string, items []string) (map[string]*string, error) {
	configs := make(map[string]*string, len(items))
	for _, item := range items {
		key, value, ok := strings.Cut(item, "=")
		if !ok || key == "" {
			return nil, usagef("--%s %q: want KEY=VALUE", flag, item).
				hint("Example: --%s retention.ms=86400000", flag)
		}
		configs[key] = &value
	}
	return configs, nil
}

// lookup describes topics that must exist. A name that does not is answered
// with the one most like it.
func lookup(ctx context.Context, adm *kadm.Client, topics ...string) (kadm.Metadata, error) {
	m, err := adm.Metadata(ctx, topics...)
	if err != nil {
		return m, err
	}
	for _, name := range topics {
		t, ok := m.Topics[name]
		if ok && t.Err == nil {
			continue
		}
		if ok && t.Err != kerr.UnknownTopicOrPartition {
			return m, refusal(fmt.Sprintf("topic %s", name), t.Err, "")
		}
		return m, noTopic(ctx, adm, name)
	}
	return m, nil
}

// noTopic is the failure of a topic that does not exist.
func noTopic(ctx context.Context, adm *kadm.Client, name string) error {
	f := failf("there is no topic %s", name)
	f.cause = kerr.UnknownTopicOrPartition
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return f
	}
	if near := nearest.To(name, slices.Values(all.Names())); near != "" {
		return f.hint("Did you mean %s?", near)
	}
	return f.hint("strandline topic list shows what is there; strandline topic create %s makes it.",
		name)
}

// topicID prints a topic's id as Kafka does, or "" if there is none.
func topicID(id kadm.TopicID) string {
	if kafka.TopicID(id).IsZero() {
		return ""
	}
	return kafka.TopicID(id).String()
}

// joinIDs prints broker ids for a cell.
func joinIDs(ids []int32) string {
	if len(ids) == 0 {
		return "-"
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ",")
}
