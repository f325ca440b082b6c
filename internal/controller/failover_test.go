package controller_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// scenario runs lines of "what happens -> what partition a-0 is then" on brokers 1
// to 3 that are all in sync, 1 leading. A partition is written as leader, ISR and
// leader epoch.
func scenario(t *testing.T, w *world, script string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(script)) {
		what, want, _ := strings.Cut(line, "->")
		play(t, w, strings.Fields(what))
		got, want := describe(w.Image().Topic("a").Partitions[0]), strings.TrimSpace(want)
		if got != want {
			t.Fatalf("after %q: %s, want %s", strings.TrimSpace(what), got, want)
		}
	}
	w.checkReplayLaw()
}

func describe(p metadata.Partition) string {
	leader := strconv.Itoa(int(p.Leader))
	switch {
	case p.Lost:
		leader = "lost"
	case p.Leader == kafka.NoBroker:
		leader = "none"
	}
	return fmt.Sprintf("%s %v %d", leader, p.ISR, p.LeaderEpoch)
}

func play(t *testing.T, w *world, words []string) {
	t.Helper()
	var ids []kafka.BrokerID
	for _, word := range words[1:] {
		id, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, kafka.BrokerID(id))
	}
	id := ids[0]
	b, _ := w.Image().Broker(id)
	switch words[0] {
	case "fence":
		w.fence(ids...)
	case "up":
		w.up(int32(id))
	case "leave":
		w.beat(int32(id), func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true })
	case "crash": // Its next process registers.
		w.start(registration(int32(id), -1))
	case "restart":
		w.start(registration(int32(id), int64(b.Epoch)))
	case "wipe":
		req := registration(int32(id), -1)
		req.LogDirs = [][16]byte{{byte(b.Epoch) + 1}}
		if resp := w.start(req); resp.ErrorCode != 0 {
			t.Fatalf("wiped: %v", kafka.Code(resp.ErrorCode))
		}
	case "unseen":
		for _, id := range ids {
			w.unseen[id] = true
		}
	case "seen":
		for _, id := range ids {
			w.unseen[id] = false
		}
	case "join": // The leader lets a replica in.
		w.join(id)
	default:
		t.Fatalf("what is %q?", words[0])
	}
}

// join has the leader of a-0 ask for a replica to be in sync.
func (w *world) join(id kafka.BrokerID) kafka.Code {
	w.Helper()
	topic := w.Image().Topic("a")
	p := topic.Partitions[0]
	leader, _ := w.Image().Broker(p.Leader)
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.LeaderEpoch, rp.PartitionEpoch = int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	for _, id := range append(append([]kafka.BrokerID{}, p.ISR...), id) {
		b, _ := w.Image().Broker(id)
		member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		member.BrokerID, member.BrokerEpoch = int32(id), int64(b.Epoch)
		rp.NewEpochISR = append(rp.NewEpochISR, member)
	}
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = topic.ID, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(p.Leader), int64(leader.Epoch)
	req.Topics = append(req.Topics, rt)
	resp, records := w.AlterPartition(req)
	w.replay(records)
	if resp.ErrorCode != 0 {
		return kafka.Code(resp.ErrorCode)
	}
	return kafka.Code(resp.Topics[0].Partitions[0].ErrorCode)
}

func TestFailover(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int16
		config   string
		script   string
	}{
		"one after the other, and back": {3, "", `
			fence 1 -> 2 [2 3] 1
			fence 2 -> 3 [3] 2
			fence 3 -> none [3] 3
			up 1    -> none [3] 3
			up 2    -> none [3] 3
			up 3    -> 3 [3] 4
			join 1  -> 3 [3 1] 4
			fence 3 -> 1 [1] 5`},
		"a follower": {3, "", `
			fence 3 -> 1 [1 2] 0
			up 3    -> 1 [1 2] 0
			join 3  -> 1 [1 2 3] 0`},
		"all at once: each of them has everything": {3, "", `
			fence 1 2 3 -> none [1 2 3] 1
			up 2        -> 2 [2] 2
			up 1        -> 2 [2] 2`},
		"the last two at once": {3, "", `
			fence 1   -> 2 [2 3] 1
			fence 2 3 -> none [2 3] 2
			up 1      -> none [2 3] 2
			up 3      -> 3 [3] 3`},
		"twice": {3, "", `
			fence 1 -> 2 [2 3] 1
			fence 1 -> 2 [2 3] 1`},
		"the only replica": {1, "", `
			fence 1 -> none [1] 1
			up 1    -> 1 [1] 2`},
		"unclean elections are allowed": {2, "unclean.leader.election.enable=true", `
			fence 2 -> 1 [1] 0
			up 2    -> 1 [1] 0
			fence 1 -> 2 [2] 1
			fence 2 -> none [2] 2
			up 1    -> 1 [1] 3`},
		"a restart within the session": {3, "", `
			crash 1   -> 2 [2 3] 1
			up 1      -> 2 [2 3] 1
			join 1    -> 2 [2 3 1] 1
			restart 2 -> 1 [3 1] 2
			up 2      -> 1 [3 1] 2`},
		"a crash of the only one in sync": {3, "", `
			fence 1 -> 2 [2 3] 1
			fence 3 -> 2 [2] 1
			crash 2 -> none [2] 2
			up 3    -> none [2] 2
			up 2    -> 2 [2] 3`},
		"a power failure of all": {3, "", `
			unseen 1 2 3 -> 1 [1 2 3] 0
			crash 1      -> none [1 2 3] 1
			seen 1       -> none [1 2 3] 1
			up 1         -> 1 [1 2 3] 2
			crash 2      -> 1 [1 3] 2
			seen 2       -> 1 [1 3] 2
			fence 3      -> 1 [1] 2`},
		"a power failure of all, a follower first": {3, "", `
			unseen 1 2 3 -> 1 [1 2 3] 0
			crash 3      -> 1 [1 2 3] 0
			seen 3       -> 1 [1 2 3] 0
			up 3         -> 1 [1 2 3] 0
			crash 1      -> 3 [2 3] 1
			fence 2      -> 3 [3] 1`},
		"a new controller has not heard of the others": {3, "", `
			unseen 2 3 -> 1 [1 2 3] 0
			seen 3     -> 1 [1 2 3] 0
			fence 1    -> 3 [2 3] 1`},
		"a crash where acknowledged records may be unsynced": {3, "flush.messages=1000", `
			fence 1 2 3 -> none [1 2 3] 1
			crash 1     -> none [2 3] 1
			crash 2     -> none [3] 1
			up 1        -> none [3] 1
			crash 3     -> none [3] 1
			up 3        -> 3 [3] 2`},
		"a clean restart of all where records may be unsynced": {3, "flush.messages=1000", `
			fence 1 2 3 -> none [1 2 3] 1
			restart 1   -> none [1 2 3] 1
			up 1        -> 1 [1] 2`},
		"an empty directory": {3, "", `
			fence 1 2 3 -> none [1 2 3] 1
			wipe 1      -> none [2 3] 1
			up 1        -> none [2 3] 1
			up 2        -> 2 [2] 2
			join 1      -> 2 [2 1] 2`},
		"an empty directory in the place of the last copy": {3, "", `
			fence 2 -> 1 [1 3] 0
			fence 3 -> 1 [1] 0
			fence 1 -> none [1] 1
			wipe 1  -> lost [1] 1
			up 1    -> lost [1] 1
			up 2    -> lost [1] 1
			fence 1 -> lost [1] 1
			crash 1 -> lost [1] 1`},
		"an empty directory, unclean elections allowed": {3, "unclean.leader.election.enable=true", `
			fence 1 2 3 -> none [1 2 3] 1
			fence 1     -> none [1 2 3] 1
			wipe 1      -> none [2 3] 1
			up 1        -> 1 [1] 2`},
		"shut down": {3, "", `
			leave 1   -> 2 [2 3] 1
			leave 1   -> 2 [2 3] 1
			restart 1 -> 2 [2 3] 1
			up 1      -> 2 [2 3] 1`},
		"shut down the only replica: it serves to the end": {1, "", `
			leave 1   -> 1 [1] 0
			leave 1   -> none [1] 1
			restart 1 -> none [1] 1
			up 1      -> 1 [1] 2`},
		"shut down one after the other": {3, "", `
			leave 1 -> 2 [2 3] 1
			leave 1 -> 2 [2 3] 1
			leave 2 -> 3 [3] 2
			leave 2 -> 3 [3] 2
			leave 3 -> 3 [3] 2
			leave 3 -> none [3] 3`},
		"change one's mind": {3, "", `
			leave 1 -> 2 [2 3] 1
			up 1    -> 2 [2 3] 1
			join 1  -> 2 [2 3 1] 1`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, nil)
			var configs []string
			if c.config != "" {
				configs = append(configs, c.config)
			}
			w.dress()
			w.create(topicOf("a", 1, c.replicas, configs...))
			scenario(t, w, c.script)
		})
	}
}

// dress gives every broker a data directory.
func (w *world) dress() {
	for id := int32(1); id <= 3; id++ {
		b, _ := w.Image().Broker(kafka.BrokerID(id))
		req := registration(id, int64(b.Epoch))
		req.LogDirs = [][16]byte{{0xd0, byte(id)}}
		w.start(req)
		w.up(id)
	}
}

// A broker that is fenced or leaves gets nothing to lead and does not become in
// sync.
func TestNotAvailable(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 3))
	w.fence(3)
	if code := w.join(3); code != kafka.ErrIneligibleReplica {
		t.Errorf("a fenced broker joins the ISR: %v", code)
	}
	w.up(3)
	w.beat(3, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true })
	if code := w.join(3); code != kafka.ErrIneligibleReplica {
		t.Errorf("a broker that leaves joins the ISR: %v", code)
	}
	w.create(topicOf("b", 4, 2))
	for i, p := range w.Image().Topic("b").Partitions {
		if p.Leader == 3 || len(p.ISR) != 2 {
			t.Errorf("b-%d: %+v", i, p)
		}
	}
}

// One decision moves everything of a broker, in one record a topic.
func TestOneFailureIsOneDecision(t *testing.T) {
	w := newWorld(t, 3, nil)
	for i := range 30 {
		w.create(topicOf(fmt.Sprintf("t%d", i), 100, 3))
	}
	before := len(w.log)
	w.fence(2)
	if n := len(w.log) - before; n != 31 {
		t.Errorf("%d records for 30 topics", n)
	}
	size := len(metadata.AppendRecords(nil, w.log[before:]...))
	if perPartition := size / 3000; perPartition > 32 {
		t.Errorf("%d bytes a partition", perPartition)
	}
	led := map[kafka.BrokerID]int{}
	for topic := range w.Image().AllTopics() {
		for _, p := range topic.Partitions {
			led[p.Leader]++
		}
	}
	if led[2] != 0 || led[1] < 1400 || led[3] < 1400 {
		t.Errorf("leaders after the failure: %v", led)
	}
}

func BenchmarkFenceBrokers(b *testing.B) {
	w := newWorld(b, 3, nil)
	for i := range 30 {
		w.create(topicOf(fmt.Sprintf("t%d", i), 100, 3))
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(w.FenceBrokers([]kafka.BrokerID{2})) != 31 {
			b.Fatal("not all partitions move")
		}
	}
}
