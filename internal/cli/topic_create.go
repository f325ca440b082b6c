package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline/strandline/internal/durability"
)

type topicCreate struct {
	*app
	partitions  int32
	replication int16
	configs     []string
	durability  string
	ifNotExists bool
	dryRun      bool
}

// createdTopic is a topic as topic create reports it.
type createdTopic struct {
	Topic             string `json:"topic"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int16  `json:"replication_factor"`
	ID                string `json:"id"`
	Created           bool   `json:"created"`
	Durability        string `json:"durability"` // As it was asked for; "" if it was not.
}

const topicCreateLong = `Create topics.

--durability makes one of three contracts with those who write, by setting the number of
replicas, min.insync.replicas and flush.messages:
  strict    three replicas. acks=all is answered when all replicas in sync, two at least,
            have the record on their disks: what was acknowledged survives the loss of a
            broker, and of power everywhere.
  balanced  three replicas. acks=all is answered when they have it in memory: cheaper, and
            safe unless all lose their power at once.
  relaxed   two replicas, for telemetry with acks=1: the leader answers from memory, and
            the newest records are lost when it fails.
Without it, topics have the broker's default.replication.factor and min.insync.replicas,
and every acknowledged record is synced. strandline topic describe shows the contract.

`

func newTopicCreate(a *app) *cobra.Command {
	c := &topicCreate{app: a}
	cmd := &cobra.Command{
		Use:   "create TOPIC…",
		Short: "Create topics",
		Long: topicCreateLong + resultHelp[[]createdTopic]("topic", "partitions",
			"replication factor", "topic id", "created (false if it was there)"),
		Example: `  strandline topic create orders --partitions 6
  strandline topic create payments --partitions 6 --durability strict
  strandline topic create events --config retention.ms=86400000 --config cleanup.policy=delete`,
		Args:              wantArgs(1, -1, "one or more topics"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.Int32VarP(&c.partitions, "partitions", "p", -1,
		"`number` of partitions (default the broker's num.partitions)")
	f.Int16VarP(&c.replication, "replication-factor", "r", -1,
		"`number` of brokers that keep a copy (default the broker's default.replication.factor)")
	f.StringArrayVarP(&c.configs, "config", "c", nil,
		"a setting of the topic, `KEY=VALUE`; may be repeated")
	f.StringVar(&c.durability, "durability", "", "`contract`: strict, balanced or relaxed")
	_ = cmd.RegisterFlagCompletionFunc("durability", cobra.FixedCompletions( // It fails for no flag of ours.
		durability.Names(), cobra.ShellCompDirectiveNoFileComp))
	f.BoolVar(&c.ifNotExists, "if-not-exists", false, "take a topic that is there already for done")
	f.BoolVar(&c.dryRun, "dry-run", false, "ask the broker whether it would do it, and do nothing")
	return cmd
}

func (c *topicCreate) run(ctx context.Context, topics []string) error {
	configs, err := parseConfigs("config", c.configs)
	if err != nil {
		return err
	}
	if c.partitions < 1 && c.partitions != -1 {
		return usagef("--partitions %d: want at least 1", c.partitions)
	}
	if c.replication < 1 && c.replication != -1 {
		return usagef("--replication-factor %d: want at least 1", c.replication)
	}
	return c.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if err := c.keepContract(ctx, adm, configs); err != nil {
			return err
		}
		create := adm.CreateTopics
		if c.dryRun {
			create = adm.ValidateCreateTopics
		}
		responses, err := create(ctx, c.partitions, c.replication, configs, topics...)
		if err != nil {
			return err
		}
		return c.print(responses, topics)
	})
}

// keepContract sets what --durability asks for.
func (c *topicCreate) keepContract(ctx context.Context, adm *kadm.Client, configs map[string]*string) error {
	if c.durability == "" {
		return nil
	}
	m, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	choice, err := durability.Choose(c.durability, len(m.Brokers), int(max(c.replication, 0)))
	var unknown *durability.UnknownError
	switch {
	case errors.As(err, &unknown):
		return usagef("--%w", err)
	case err != nil:
		return failf("%w", err).hint("strandline topic create --help explains the contracts, and strandline " +
			"cluster describe shows the brokers.")
	}
	for name, value := range choice.Settings {
		if given, ok := configs[name]; ok && *given != value {
			return usagef("--durability %s sets %s=%s, and --config %s=%s says otherwise", c.durability, name, value,
				name, *given).hint("Leave one of them out.")
		}
		configs[name] = &value
	}
	c.replication = int16(choice.ReplicationFactor)
	return nil
}

func (c *topicCreate) print(responses kadm.CreateTopicResponses, topics []string) error {
	created := make([]createdTopic, 0, len(topics))
	t := newTable("topic", ">partitions", ">replicas", "id", "created")
	var failed []error
	for _, name := range topics {
		r := responses[name]
		exists := errors.Is(r.Err, kerr.TopicAlreadyExists)
		if r.Err != nil && !(exists && c.ifNotExists) {
			failed = append(failed, refusal("create topic "+name, r.Err, r.ErrMessage))
			continue
		}
		row := createdTopic{name, r.NumPartitions, r.ReplicationFactor, topicID(r.ID), !exists &&
			!c.dryRun, c.durability}
		created = append(created, row)
		c.warnOfRefusal(r)
		t.add(name, fmt.Sprint(row.Partitions), fmt.Sprint(row.ReplicationFactor), orDash(row.ID),
			row.Created)
	}
	if c.out.form == formTable {
		c.sayCreated(created)
	} else if err := c.out.show(created, t); err != nil {
		return err
	}
	return c.joined(failed)
}

// warnOfRefusal tells of a topic that takes nothing from most producers. Kafka creates it too.
func (c *topicCreate) warnOfRefusal(r kadm.CreateTopicResponse) {
	setting := r.Configs["min.insync.replicas"]
	minimum, err := strconv.Atoi(setting.MaybeValue())
	if err != nil || r.Err != nil || minimum <= int(r.ReplicationFactor) {
		return // A broker that does not say what it set has no number there.
	}
	c.out.warn("topic %s refuses acks=all, for good: min.insync.replicas is %d, and it has %s. "+
		"Ask for more replicas, or --config min.insync.replicas=%d", r.Topic, minimum,
		plural(int32(r.ReplicationFactor), "replica"), r.ReplicationFactor)
}

func (c *topicCreate) sayCreated(created []createdTopic) {
	for _, t := range created {
		switch {
		case c.dryRun:
			c.out.remark("Topic %s could be created.", t.Topic)
		case !t.Created:
			c.out.remark("Topic %s is there already.", t.Topic)
		default:
			c.out.remark("Created topic %s: %s, replication factor %d.", t.Topic,
				plural(t.Partitions, "partition"), t.ReplicationFactor)
			if t.Durability != "" {
				c.out.remark("Durability %s: strandline topic describe %s says what it promises.", t.Durability, t.Topic)
			}
		}
	}
}

// joined reports all but the last of several failures and returns the last.
func (a *app) joined(failed []error) error {
	if len(failed) == 0 {
		return nil
	}
	for _, err := range failed[:len(failed)-1] {
		a.out.failure(a.explain(err))
	}
	return failed[len(failed)-1]
}
