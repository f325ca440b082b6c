package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkCluster looks at what a single broker does not have: others, voters, and a
// division of the work. On a broker that is alone it finds nothing to say.
func (d *doctor) checkCluster(ctx context.Context, client *kgo.Client, m kadm.Metadata) {
	limited, cancel := d.limit(ctx)
	defer cancel()
	brokers, err := allBrokers(limited, client)
	if err != nil {
		d.say(statusWarning, "brokers", "brokers that are down are not known: "+d.explain(err).message, "")
	}
	d.registered = max(len(brokers), len(m.Brokers))
	if d.registered < 2 {
		return
	}
	q, err := d.quorum(ctx, client)
	d.undecided = err != nil
	d.checkBrokers(brokers, m)
	if d.undecided {
		d.say(statusProblem, "voters", "who elects the controller is not known: "+d.explain(err).message,
			"Without a majority of the voters no topic can be made and no leader moves: start them.")
		return // Who leads is what was decided last.
	}
	cordoned, err := cordonedOf(limited, kadm.NewClient(client), brokers)
	if err != nil {
		d.say(statusWarning, "brokers", "which brokers are cordoned is not known: "+d.explain(err).message, "")
	}
	d.checkVoters(q, m, cordoned)
	var down []int32
	for _, b := range brokers {
		if b.IsFenced {
			down = append(down, b.NodeID)
		}
	}
	d.checkLeaders(m, down, cordoned)
}

// checkBrokers looks for registered brokers that are down. Without a controller nobody
// finds out that one is.
func (d *doctor) checkBrokers(brokers []kmsg.DescribeClusterResponseBroker, m kadm.Metadata) {
	held := map[int32]int{}
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		for _, id := range p.Replicas {
			held[id]++
		}
	})
	down := 0
	for _, b := range brokers {
		if !b.IsFenced {
			continue
		}
		down++
		if n := held[b.NodeID]; n > 0 {
			d.say(statusWarning, "brokers", fmt.Sprintf("broker %d is down, with %s", b.NodeID, plural(n, "replica")),
				fmt.Sprintf("Start it. If it is lost for good: strandline cluster drain %d", b.NodeID))
		} else {
			d.say(statusNote, "brokers", fmt.Sprintf("broker %d is down, and holds nothing", b.NodeID),
				fmt.Sprintf("If it is gone for good: strandline cluster unregister %d", b.NodeID))
		}
	}
	switch {
	case d.undecided:
		d.say(statusWarning, "brokers", "which brokers are up is not known, nor who leads: what is said of it was so when "+
			"there was a controller", "")
	case down == 0:
		d.ok("brokers", "all %s are up", plural(len(brokers), "broker"))
	}
}

// voterBehind is how many entries a voter may lack.
const voterBehind = 1000

// checkVoters looks at who elects the controller.
func (d *doctor) checkVoters(q *describedQuorum, m kadm.Metadata, cordoned map[int32]bool) {
	before := len(d.report)
	var lost []int32
	for _, v := range q.Voters {
		switch {
		case q.lost(v):
			lost = append(lost, v.ID)
		case v.Lag > voterBehind:
			d.say(statusWarning, "voters", fmt.Sprintf("voter %d lacks %s of the metadata", v.ID, plural(v.Lag, "record")),
				"It is slow, or its disk is: see its log.")
		}
	}
	n, spare := len(q.Voters), canVote(q, m, cordoned)
	if len(lost) > 0 {
		bears := (n-1)/2 - len(lost)
		more := fmt.Sprintf("%d more can be lost", bears)
		if bears <= 0 {
			more = "with one more lost nothing can be decided"
		}
		d.say(statusWarning, "voters", fmt.Sprintf("voter %s is not heard of; %s", numbers(lost), more),
			fmt.Sprintf("Start it. If its disk is lost: strandline cluster remove-voter %d, and add another", lost[0]))
	}
	switch {
	case n == 1 && len(spare) >= 2:
		d.say(statusWarning, "voters", fmt.Sprintf("broker %d is the only voter of %s: without it no leader moves",
			q.Voters[0].ID, plural(len(m.Brokers), "broker")),
			fmt.Sprintf("Make two more of them voters: strandline cluster add %d %d", spare[0], spare[1]))
	case n%2 == 0:
		d.say(statusWarning, "voters", fmt.Sprintf("voters are %s, an even number: %s", numbers(idsOf(q.Voters)), voteStrength(n)),
			makeOdd(q, lost, spare))
	}
	if len(d.report) == before {
		d.ok("voters", "%s elect the controller, which is broker %d: %s", numbers(idsOf(q.Voters)), q.Leader, voteStrength(n))
	}
}

// canVote lists the brokers that are up, have no vote, and are here to stay.
func canVote(q *describedQuorum, m kadm.Metadata, cordoned map[int32]bool) []int32 {
	var ids []int32
	for _, b := range m.Brokers {
		if _, learns := find(q.Learners, b.NodeID); learns && !cordoned[b.NodeID] {
			ids = append(ids, b.NodeID)
		}
	}
	slices.Sort(ids)
	return ids
}

// makeOdd says how an even number of voters becomes an odd one: by one more where a
// broker is there for it, else by one less, and rather by one that is lost.
func makeOdd(q *describedQuorum, lost, spare []int32) string {
	n := len(q.Voters)
	switch {
	case len(spare) > 0 && n < maxVoters:
		return fmt.Sprintf("strandline cluster add %d", spare[0])
	case n == 2:
		return "Start one more broker, and give it a vote: strandline cluster add BROKER"
	}
	less := slices.Clone(lost)
	for _, v := range slices.Backward(q.Voters) {
		if v.ID != q.Leader {
			less = append(less, v.ID)
		}
	}
	return fmt.Sprintf("strandline cluster remove-voter %d", less[0])
}

// checkLeaders looks whether some brokers lead far more than others. Those that are down
// lead nothing, and the others what those led; those that are cordoned are to lead nothing.
func (d *doctor) checkLeaders(m kadm.Metadata, down []int32, cordoned map[int32]bool) {
	leads, prefers, holds := map[int32]int{}, map[int32]int{}, map[int32]int{}
	total, away := 0, 0
	m.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader < 0 || len(p.Replicas) == 0 {
			return
		}
		total++
		leads[p.Leader]++
		prefers[p.Replicas[0]]++
		if p.Leader != p.Replicas[0] {
			away++
		}
		for _, id := range p.Replicas {
			holds[id]++
		}
	})
	if slices.ContainsFunc(down, func(id int32) bool { return leads[id] > 0 }) {
		return // It went down after the leaders were asked for: others take over now.
	}
	var ids, empty []int32
	for _, b := range m.Brokers {
		switch {
		case slices.Contains(down, b.NodeID):
			continue
		case cordoned[b.NodeID]:
			d.sayCordoned(b.NodeID, holds[b.NodeID])
			continue
		}
		ids = append(ids, b.NodeID)
		if holds[b.NodeID] == 0 {
			empty = append(empty, b.NodeID)
		}
	}
	slices.Sort(ids)
	switch {
	case total == 0:
	case len(empty) > 0 && total >= len(ids):
		d.say(statusWarning, "leaders", "no partition at all is on "+namedBrokers(empty),
			"Give it a share: strandline cluster balance")
	case uneven(leads, ids) && uneven(prefers, ids):
		d.say(statusWarning, "leaders", "leaders are uneven: "+tally(leads, ids), "strandline cluster balance --leaders")
	case uneven(leads, ids):
		d.say(statusNote, "leaders", fmt.Sprintf("leaders are uneven for now, with %s led by another replica than they prefer: %s",
			plural(away, "partition"), tally(leads, ids)), "They go back by themselves, or now: strandline cluster balance --leaders")
	case len(down) > 0:
		d.say(statusNote, "leaders", fmt.Sprintf("leaders are even among the brokers that are up: %s; nothing is led by %s, while down",
			tally(leads, ids), namedBrokers(down)), "")
	case away > 0:
		d.say(statusNote, "leaders", fmt.Sprintf("%s led by another replica than they prefer, for now: %s",
			plural(away, "partition"), tally(leads, ids)), "They go back by themselves, or now: strandline cluster balance --leaders")
	default:
		d.ok("leaders", "leaders are even: %s", tally(leads, ids))
	}
}

// sayCordoned tells of a broker that drain has emptied, or is to.
func (d *doctor) sayCordoned(id int32, holds int) {
	undo := fmt.Sprintf("strandline cluster drain %d --undo", id)
	if holds == 0 {
		d.say(statusNote, "brokers", fmt.Sprintf("broker %d is drained: nothing is on it, and nothing will be", id),
			fmt.Sprintf("Stop it, and have it forgotten: strandline cluster unregister %d. To use it again: %s", id, undo))
		return
	}
	d.say(statusNote, "brokers", fmt.Sprintf("broker %d is cordoned, and holds %s: new ones go elsewhere", id, plural(holds, "replica")),
		fmt.Sprintf("Move them: strandline cluster drain %d. To use it again: %s", id, undo))
}

// uneven says whether one broker has half as much again as its share, and two more
// than another.
func uneven(counts map[int32]int, ids []int32) bool {
	if len(ids) == 0 {
		return false
	}
	most, least, sum := 0, 1<<31, 0
	for _, id := range ids {
		most, least, sum = max(most, counts[id]), min(least, counts[id]), sum+counts[id]
	}
	return most-least >= 2 && 2*most*len(ids) > 3*sum
}

// tally lists counts by broker.
func tally(counts map[int32]int, ids []int32) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("broker %d has %d", id, counts[id])
	}
	return text
}
