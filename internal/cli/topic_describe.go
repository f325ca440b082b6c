package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/durability"
)

type topicDescribe struct {
	*app
	configs bool
	all     bool
}

// describedTopic is a topic as topic describe shows it.
type describedTopic struct {
	Topic             string               `json:"topic"`
	ID                string               `json:"id"`
	Internal          bool                 `json:"internal"`
	ReplicationFactor int                  `json:"replication_factor"`
	Durability        string               `json:"durability"`       // strict, balanced, relaxed or custom; "" if unknown.
	Promise           string               `json:"durability_means"` // In words.
	Records           int64                `json:"records"`          // End minus start, over all partitions.
	Bytes             int64                `json:"bytes"`            // On the leaders' disks; -1 if unknown.
	Configs           []describedConfig    `json:"configs"`
	Partitions        []describedPartition `json:"partitions"`
}

type describedConfig struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1 if there is none.
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline_replicas"`
	Start       int64   `json:"start_offset"` // -1 if unknown, as the next two.
	End         int64   `json:"end_offset"`
	Bytes       int64   `json:"bytes"`
}

func newTopicDescribe(a *app) *cobra.Command {
	d := &topicDescribe{app: a}
	cmd := &cobra.Command{
		Use:   "describe TOPIC…",
		Short: "Show a topic's partitions, offsets, sizes and settings",
		Long: "Show a topic's partitions, offsets, sizes and settings.\n\n" +
			columnsHelp("topic", "partition", "leader", "replicas", "replicas in sync", "start offset",
				"end offset", "bytes") +
			"\nWith --configs they are topic, setting, value, source.\n" + jsonHelp[[]describedTopic](),
		Args:              wantArgs(1, -1, "one or more topics"),
		ValidArgsFunction: a.completeTopics(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&d.configs, "configs", false, "show the settings instead of the partitions")
	cmd.Flags().BoolVar(&d.all, "all-configs", false,
		"show every setting, those that were not changed too")
	return cmd
}

func (d *topicDescribe) run(ctx context.Context, names []string) error {
	return d.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := d.describe(ctx, adm, names)
		if err != nil {
			return err
		}
		switch {
		case d.out.form == formJSON:
			return d.out.json(topics)
		case d.configs || d.all && d.out.form == formPlain:
			return d.out.show(nil, configTable(topics))
		case d.out.form == formPlain:
			return d.out.show(nil, partitionTable(topics))
		}
		return d.people(topics)
	})
}

func (d *topicDescribe) describe(ctx context.Context, adm *kadm.Client,
	names []string,
) ([]*describedTopic, error) {
	m, err := lookup(ctx, adm, names...)
	if err != nil {
		return nil, err
	}
	starts, startErr := adm.ListStartOffsets(ctx, names...)
	ends, endErr := adm.ListEndOffsets(ctx, names...)
	dirs, dirErr := adm.DescribeAllLogDirs(ctx, m.Topics.TopicsSet())
	configs, configErr := adm.DescribeTopicConfigs(ctx, names...)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	for what, err := range map[string]error{
		"offsets": startErr, "end offsets": endErr,
		"sizes": dirErr, "settings": configErr,
	} {
		if err != nil {
			d.out.warn("some %s are not known: %s", what, d.silence(err))
		}
	}
	topics := make([]*describedTopic, 0, len(names))
	for _, name := range names {
		t := describeTopic(m.Topics[name], starts, ends, dirs)
		if r, err := configs.On(name, nil); err == nil {
			t.Configs = d.describeConfigs(r)
			t.describeDurability(r)
		}
		topics = append(topics, t)
	}
	return topics, nil
}

func describeTopic(detail kadm.TopicDetail, starts, ends kadm.ListedOffsets,
	dirs kadm.DescribedAllLogDirs,
) *describedTopic {
	t := &describedTopic{
		Topic: detail.Topic, ID: topicID(detail.ID), Internal: detail.IsInternal,
		Configs: []describedConfig{}, Partitions: []describedPartition{},
	}
	for _, p := range detail.Partitions.Sorted() {
		row := describedPartition{
			Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
			Replicas: orNone(p.Replicas), ISR: orNone(p.ISR), Offline: orNone(p.OfflineReplicas),
			Start: listed(starts, t.Topic, p.Partition), End: listed(ends, t.Topic, p.Partition),
			Bytes: partitionBytes(dirs, p),
		}
		if row.Start >= 0 && row.End >= 0 {
			t.Records += row.End - row.Start
		}
		if row.Bytes < 0 || t.Bytes < 0 {
			t.Bytes = -1
		} else {
			t.Bytes += row.Bytes
		}
		t.ReplicationFactor = max(t.ReplicationFactor, len(p.Replicas))
		t.Partitions = append(t.Partitions, row)
	}
	return t
}

// describeDurability says what the topic promises, as its weakest partition does.
func (t *describedTopic) describeDurability(r kadm.ResourceConfig) {
	values := make(map[string]string, len(r.Configs))
	for _, c := range r.Configs {
		values[c.Key] = c.MaybeValue()
	}
	least := t.ReplicationFactor
	for _, p := range t.Partitions {
		least = min(least, len(p.Replicas))
	}
	f := durability.FactsOf(least, func(name string) string { return values[name] })
	t.Durability, t.Promise = string(durability.Of(f)), durability.Explain(f)
}

// orNone makes JSON say [] and not null.
func orNone(ids []int32) []int32 { return append([]int32{}, ids...) }

func listed(offsets kadm.ListedOffsets, topic string, partition int32) int64 {
	o, ok := offsets.Lookup(topic, partition)
	if !ok || o.Err != nil {
		return -1
	}
	return o.Offset
}

// partitionBytes is the size of a partition on its leader.
func partitionBytes(dirs kadm.DescribedAllLogDirs, p kadm.PartitionDetail) int64 {
	for _, dir := range dirs[p.Leader] {
		if found, ok := dir.Topics[p.Topic][p.Partition]; ok && !found.IsFuture {
			return found.Size
		}
	}
	return -1
}

func (d *topicDescribe) describeConfigs(r kadm.ResourceConfig) []describedConfig {
	configs := []describedConfig{}
	for _, c := range r.Configs {
		if !d.all && c.Source != kmsg.ConfigSourceDynamicTopicConfig {
			continue
		}
		configs = append(configs, describedConfig{c.Key, c.MaybeValue(), configSource(c.Source)})
	}
	slices.SortFunc(configs, func(a, b describedConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs
}

// configSource names where a setting comes from, as --json shows it.
func configSource(s kmsg.ConfigSource) string {
	switch s {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig,
		kmsg.ConfigSourceStaticBrokerConfig:
		return "broker"
	}
	return "default"
}

func partitionTable(topics []*describedTopic) *table {
	t := newTable("topic", ">partition", ">leader", "replicas", "in sync", ">start", ">end", ">bytes")
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			t.add(append([]any{topic.Topic}, partitionCells(p)...)...)
		}
	}
	return t
}

func partitionCells(p describedPartition) []any {
	leader := cell{text: fmt.Sprint(p.Leader)}
	if p.Leader < 0 {
		leader = cell{text: "-", person: "none", style: styleRed}
	}
	isr := cell{text: joinIDs(p.ISR)}
	if len(p.ISR) < len(p.Replicas) {
		isr.style = styleYellow
	}
	return []any{
		p.Partition, leader, joinIDs(p.Replicas), isr, known(p.Start, number),
		known(p.End, number), known(p.Bytes, sizeCell),
	}
}

// known is the cell of a number that is -1 where it is not known.
func known(n int64, show func(int64) cell) cell {
	if n < 0 {
		return missing()
	}
	return show(n)
}

func configTable(topics []*describedTopic) *table {
	t := newTable("topic", "setting", "value", "source")
	t.empty = "Every setting is the broker's; --all-configs shows them."
	for _, topic := range topics {
		for _, c := range topic.Configs {
			t.add(topic.Topic, c.Name, c.Value, cell{text: c.Source, style: styleDim})
		}
	}
	return t
}

// people prints each topic as a paragraph and a table.
func (d *topicDescribe) people(topics []*describedTopic) error {
	for i, topic := range topics {
		if i > 0 {
			d.out.printf("\n")
		}
		d.out.printf("%s  %s, replication factor %d, %s, %s\n", d.out.paint.bold(topic.Topic),
			plural(len(topic.Partitions), "partition"), topic.ReplicationFactor,
			plural(topic.Records, "record"), known(topic.Bytes, sizeCell).shown())
		d.out.printf("%s\n", d.out.paint.dim("id "+topic.ID))
		if topic.Durability != "" {
			d.out.printf("durability %s: %s\n", d.out.paint.bold(topic.Durability), topic.Promise)
		}
		for _, c := range topic.Configs {
			d.out.printf("  %s=%s %s\n", c.Name, visible(c.Value), d.out.paint.dim(sourceRemark(c.Source)))
		}
		t := newTable(">partition", ">leader", "replicas", "in sync", ">start", ">end", ">size")
		for _, p := range topic.Partitions {
			t.add(partitionCells(p)...)
		}
		t.align(d.out.stdout, d.out.paint)
	}
	return d.out.flush()
}

func sourceRemark(source string) string {
	if source == "topic" {
		return ""
	}
	return "(" + source + ")"
}
