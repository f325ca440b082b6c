package cli

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type topicAlter struct {
	*app
	partitions int
	configs    []string
	drop       []string
	yes        bool
	dryRun     bool
}

// alteredTopic is a topic as topic alter reports it.
type alteredTopic struct {
	Topic          string            `json:"topic"`
	OldPartitions  int               `json:"old_partitions"`
	Partitions     int               `json:"partitions"`
	ConfigsSet     map[string]string `json:"configs_set"`
	ConfigsDeleted []string          `json:"configs_deleted"`
	DryRun         bool              `json:"dry_run"`
}

func newTopicAlter(a *app) *cobra.Command {
	c := &topicAlter{app: a}
	cmd := &cobra.Command{
		Use:   "alter TOPIC",
		Short: "Change a topic's settings, or add partitions",
		Long: "Change a topic's settings, or add partitions to it.\n\n" +
			"Partitions can be added, never removed. From then on, most keys go to another\n" +
			"partition than before; on a terminal it says so and asks first.\n\n" +
			resultHelp[alteredTopic]("topic", "partitions before", "partitions now"),
		Example: `  strandline topic alter orders --config retention.ms=604800000
  strandline topic alter orders --delete-config retention.ms
  strandline topic alter orders --partitions 12`,
		Args:              wantArgs(1, 1, "one topic"),
		ValidArgsFunction: a.completeTopics(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.IntVarP(&c.partitions, "partitions", "p", 0, "`number` of partitions to have afterwards")
	f.StringArrayVarP(&c.configs, "config", "c", nil,
		"a setting of the topic, `KEY=VALUE`; may be repeated")
	f.StringSliceVar(&c.drop, "delete-config", nil,
		"`KEY` to give back to the broker's default; may be repeated")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&c.dryRun, "dry-run", false, "ask the broker whether it would do it, and do nothing")
	return cmd
}

func (c *topicAlter) run(ctx context.Context, topic string) error {
	configs, err := parseConfigs("config", c.configs)
	if err != nil {
		return err
	}
	if c.partitions == 0 && len(configs) == 0 && len(c.drop) == 0 {
		return usagef("nothing to alter").hint("Give --partitions, --config KEY=VALUE or " +
			"--delete-config KEY.")
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	m, err := lookup(ctx, adm, topic)
	if err != nil {
		return err
	}
	done := alteredTopic{
		Topic: topic, OldPartitions: len(m.Topics[topic].Partitions),
		ConfigsSet: map[string]string{},
	}
	done.Partitions, done.ConfigsDeleted, done.DryRun = done.OldPartitions,
		append([]string{}, c.drop...), c.dryRun
	for k, v := range configs {
		done.ConfigsSet[k] = *v
	}
	if c.partitions != 0 {
		if err := c.mayGrow(topic, done.OldPartitions); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.flags.timeout)
	defer cancel()
	if err := c.alterConfigs(ctx, adm, topic, configs); err != nil {
		return err
	}
	if c.partitions != 0 {
		if err := c.addPartitions(ctx, client, topic); err != nil {
			return err
		}
		done.Partitions = c.partitions
	}
	if c.out.form == formTable {
		c.sayAltered(done)
		return nil
	}
	t := newTable("topic", "partitions before", "partitions now")
	t.add(topic, done.OldPartitions, done.Partitions)
	return c.out.show(done, t)
}

// mayGrow explains what more partitions mean, and asks.
func (c *topicAlter) mayGrow(topic string, have int) error {
	switch {
	case c.partitions < have:
		return failf("topic %s has %s and partitions cannot be removed", topic,
			plural(have, "partition")).
			hint("To have fewer, create another topic with --partitions %d and copy:", c.partitions).
			hint("strandline consume %s --until end --format json | strandline produce NEW --format json",
				topic)
	case c.partitions == have:
		return failf("topic %s has %s already", topic, plural(have, "partition"))
	case c.dryRun:
		return nil
	}
	moved := movedKeys(have, c.partitions)
	c.out.warn("from now on about %d%% of the keys go to another partition than before: the new "+
		"records\n"+
		"  of a key are no longer behind its old ones, and consumers may see them first.\n"+
		"  To keep the order of keys, either stop the producers, let the consumers catch up "+
		"(strandline\n"+
		"  group describe GROUP shows a lag of 0), add the partitions, then start the producers; or "+
		"make a new\n"+
		"  topic with %s and move to it: strandline consume %s --until end --format json | strandline "+
		"produce NEW --format json",
		moved, plural(c.partitions, "partition"), topic)
	return c.confirm(c.yes, "Add partitions to %s, %d to %d?", topic, have, c.partitions)
}

// movedKeys is how many of a hundred keys go elsewhere when a topic grows. A key
// stays where its hash has the same remainder by both counts, which is so for
// gcd of every count of hashes.
func movedKeys(have, want int) int {
	a, b := have, want
	for b != 0 {
		a, b = b, a%b
	}
	return 100 - 100*a/want
}

func (c *topicAlter) alterConfigs(
	ctx context.Context, adm *kadm.Client, topic string, configs map[string]*string,
) error {
	var changes []kadm.AlterConfig
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: configs[name]})
	}
	for _, name := range c.drop {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 {
		return nil
	}
	alter := adm.AlterTopicConfigs
	if c.dryRun {
		alter = adm.ValidateAlterTopicConfigs
	}
	responses, err := alter(ctx, changes, topic)
	if err != nil {
		return err
	}
	r, err := responses.On(topic, nil)
	if err != nil {
		return errors.New("the broker did not answer about " + topic)
	}
	if r.Err != nil {
		return refusal("alter topic "+topic, r.Err, r.ErrMessage)
	}
	return nil
}

// addPartitions asks with the message itself: kadm hides what a broker has to
// say about a request that it granted.
func (c *topicAlter) addPartitions(ctx context.Context, client *kgo.Client, topic string) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(min(c.flags.timeout.Milliseconds(), math.MaxInt32))
	req.ValidateOnly = c.dryRun
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, int32(c.partitions)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		message := ""
		if t.ErrorMessage != nil {
			message = *t.ErrorMessage
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return refusal("add partitions to "+topic, err, message)
		}
		if message != "" {
			c.out.note("The broker says: %s", visible(message))
		}
	}
	return nil
}

func (c *topicAlter) sayAltered(t alteredTopic) {
	would := ""
	if t.DryRun {
		would = "It could be done: "
	}
	if t.Partitions != t.OldPartitions {
		c.out.remark("%sTopic %s has %s now, %d before.", would, t.Topic,
			plural(t.Partitions, "partition"), t.OldPartitions)
	}
	for _, name := range slices.Sorted(maps.Keys(t.ConfigsSet)) {
		c.out.remark("%sTopic %s: %s=%s", would, t.Topic, name, t.ConfigsSet[name])
	}
	for _, name := range t.ConfigsDeleted {
		c.out.remark("%sTopic %s: %s is the broker's default", would, t.Topic, name)
	}
}
