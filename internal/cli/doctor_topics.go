package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
)

// topicTroubles collects partitions by what is wrong with them.
type topicTroubles struct {
	leaderless, belowMin, notInSync []string
	impossible, noSpare, lonely     []string // Topics.
	unclean                         []string // Topics too.
	partitions                      int
	// spare is a min.insync.replicas that leaves each topic of noSpare a replica to
	// lose, needs the greatest of impossible, and brokers how many can hold replicas.
	spare, needs, brokers int
}

// checkTopics looks for partitions that cannot be written or are about to be.
func (d *doctor) checkTopics(ctx context.Context, adm *kadm.Client, m kadm.Metadata) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	minimum, unclean := map[string]int{}, map[string]bool{}
	configs, err := adm.DescribeTopicConfigs(ctx, m.Topics.Names()...)
	if err != nil {
		d.say(statusWarning, "topics", "min.insync.replicas is not known: "+d.explain(err).message, "")
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			switch c.Key {
			case "min.insync.replicas":
				minimum[r.Name], _ = strconv.Atoi(c.MaybeValue()) // The broker checked it.
			case "unclean.leader.election.enable":
				unclean[r.Name] = c.MaybeValue() == "true"
			}
		}
	}
	t := topicTroubles{brokers: d.registered}
	for _, topic := range m.Topics.Sorted() {
		t.add(topic, minimum[topic.Topic])
		if unclean[topic.Topic] {
			t.unclean = append(t.unclean, topic.Topic)
		}
	}
	d.sayTroubles(len(m.Topics), t)
}

func (t *topicTroubles) add(topic kadm.TopicDetail, minimum int) {
	replicas := 0
	for _, p := range topic.Partitions.Sorted() {
		t.partitions++
		name := fmt.Sprintf("%s-%d", topic.Topic, p.Partition)
		replicas = max(replicas, len(p.Replicas))
		switch {
		case p.Leader < 0:
			t.leaderless = append(t.leaderless, name)
		case len(p.ISR) < minimum && len(p.Replicas) >= minimum:
			t.belowMin = append(t.belowMin, name)
		case len(p.ISR) < len(p.Replicas):
			t.notInSync = append(t.notInSync, name)
		}
	}
	switch {
	case replicas > 0 && minimum > replicas:
		t.impossible = append(t.impossible, topic.Topic)
		t.needs = max(t.needs, minimum)
	case replicas > 1 && minimum == replicas:
		if len(t.noSpare) == 0 || minimum-1 < t.spare {
			t.spare = minimum - 1
		}
		t.noSpare = append(t.noSpare, topic.Topic)
	case replicas == 1 && t.brokers > 1:
		t.lonely = append(t.lonely, topic.Topic)
	}
}

func (d *doctor) sayTroubles(topics int, t topicTroubles) {
	before := len(d.report)
	for _, trouble := range []struct {
		names           []string
		status          string
		message, advice string
	}{
		{
			t.leaderless, statusProblem, "without a leader, so they can be neither read nor written: %s",
			"Bring back the brokers that hold their replicas: strandline topic describe TOPIC",
		},
		{
			t.impossible, statusProblem,
			"min.insync.replicas is greater than the number of replicas, so acks=all is always refused: %s",
			t.makePossible(),
		},
		{
			t.belowMin, statusProblem,
			"fewer replicas in sync than min.insync.replicas, so acks=all is refused now: %s",
			"Bring brokers back.",
		},
		{
			t.notInSync, statusWarning, "a replica is not in sync: %s",
			"Is a broker down or too slow? strandline cluster describe",
		},
		{
			t.noSpare, statusWarning,
			"min.insync.replicas equals the number of replicas, so the loss of any broker stops " +
				"acks=all: %s", fmt.Sprintf("Lower it: strandline topic alter TOPIC --config min.insync.replicas=%d", t.spare),
		},
		{
			t.lonely, statusWarning, "one replica only, though there are more brokers: %s",
			"If that broker is lost, so are they: " + t.addReplicas(),
		},
		{
			t.unclean, statusWarning, "a replica that lacks acknowledged records may lead " +
				"(unclean.leader.election.enable): %s", "strandline topic alter TOPIC --delete-config unclean.leader.election.enable",
		},
	} {
		if len(trouble.names) > 0 {
			d.say(trouble.status, "topics", fmt.Sprintf(trouble.message, some(trouble.names)),
				trouble.advice)
		}
	}
	switch {
	case len(d.report) > before:
	case d.undecided:
		d.say(statusNote, "topics", fmt.Sprintf("when there was a controller, all %s of %s had a leader and their replicas in sync",
			plural(t.partitions, "partition"), plural(topics, "topic")), "")
	default:
		d.ok("topics", "all %s of %s have a leader and their replicas in sync",
			plural(t.partitions, "partition"), plural(topics, "topic"))
	}
}

// enough is how many replicas topics are to have here.
func (t *topicTroubles) enough() int { return min(internalReplicas, t.brokers) }

// addReplicas is the command that gives topics as many.
func (t *topicTroubles) addReplicas() string {
	return fmt.Sprintf("strandline cluster add --replication-factor %d", t.enough())
}

// makePossible is what to do about topics that refuse acks=all: what was meant is more
// replicas rather than fewer in sync, where there are brokers for them.
func (t *topicTroubles) makePossible() string {
	if t.needs <= t.enough() {
		return "Give it more replicas: " + t.addReplicas()
	}
	return "Lower it: strandline topic alter TOPIC --config min.insync.replicas=1"
}

// checkGroups looks for groups that lose records, are stuck, or lag with nobody
// running.
func (d *doctor) checkGroups(ctx context.Context, adm *kadm.Client) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		d.say(statusWarning, "groups", "consumer groups are not known: "+d.explain(err).message, "")
		return
	}
	if len(listed) == 0 {
		d.ok("groups", "there are no consumer groups")
		return
	}
	lags, err := adm.Lag(ctx, listed.Groups()...)
	if err != nil {
		d.say(statusWarning, "groups", "lags are not known: "+d.explain(err).message, "")
		return
	}
	odd, lag := 0, int64(0)
	for _, l := range lags.Sorted() {
		if err := l.Error(); err != nil {
			if !isNoGroup(err, l.State) {
				d.say(statusWarning, "groups", fmt.Sprintf("group %s: %v", l.Group, err), "")
			}
			continue
		}
		g := describeGroup(l)
		lag += g.Lag
		for _, remark := range g.Remarks {
			odd++
			d.say(statusWarning, "groups", fmt.Sprintf("group %s: %s", g.Group, remark),
				"strandline group describe "+g.Group+" --lag-time")
		}
	}
	if odd == 0 {
		d.ok("groups", "%s, %s behind in all", plural(len(listed), "consumer group"),
			plural(lag, "record"))
	}
}
