package controller_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// replicaModel is what is on the disk of a broker, for topic a with one partition.
type replicaModel struct {
	running bool // And registered.
	has     int  // Acknowledged records that it has.
	epoch   int64
	disk    byte // The id of its directory.
}

// safetyWorld is a cluster of which the disks are known.
type safetyWorld struct {
	*world
	replicas     map[kafka.BrokerID]*replicaModel
	acknowledged int
	minInSync    int
}

func (w *safetyWorld) partition() metadata.Partition { return w.Image().Topic("a").Partitions[0] }

// Whatever fails in whatever order: who is elected without the wish for an unclean
// election has every record that was acknowledged.
func TestNoElectionLosesRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &safetyWorld{world: newWorld(t, 3, nil), replicas: map[kafka.BrokerID]*replicaModel{}}
		w.dress()
		factor := int16(rapid.IntRange(1, 3).Draw(t, "replicas"))
		w.minInSync = rapid.IntRange(1, 3).Draw(t, "min in sync")
		w.create(topicOf("a", 1, factor, fmt.Sprint("min.insync.replicas=", w.minInSync)))
		for _, b := range w.Image().Brokers() {
			w.replicas[b.ID] = &replicaModel{running: true, epoch: int64(b.Epoch), disk: byte(b.ID)}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := w.partition()
			w.step(t, kafka.BrokerID(rapid.IntRange(1, 3).Draw(t, "broker")))
			w.check(before)
		}
		w.checkReplayLaw()
	})
}

func (w *safetyWorld) step(t *rapid.T, id kafka.BrokerID) {
	r := w.replicas[id]
	switch rapid.SampledFrom([]string{
		"produce", "produce", "produce", "crash", "stop", "wipe", "start", "start", "start", "expire", "expire",
		"heartbeat", "heartbeat", "heartbeat", "catch up", "catch up", "leave", "new controller", "heard", "heard",
		"prefer", "elect", "reassign", "settle", "resign", "resign", "min in sync",
	}).Draw(t, "step") {
	case "produce":
		w.produce()
	case "crash", "stop":
		r.running = false
	case "wipe":
		if !r.running {
			r.has = 0
			r.disk += 16
		}
	case "start":
		if !r.running {
			w.boot(id, rapid.Bool().Draw(t, "clean"))
		}
	case "expire":
		if !r.running {
			w.fence(id)
		}
	case "heartbeat":
		if r.running {
			w.unseen[id] = false
			w.up(int32(id))
		}
	case "catch up":
		w.catchUp(id)
	case "leave":
		if r.running {
			w.beat(int32(id), func(req *kmsg.BrokerHeartbeatRequest) { req.WantShutdown = true })
		}
	case "new controller":
		for _, b := range w.Image().Brokers() {
			w.unseen[b.ID] = true
		}
	case "heard":
		if r.running {
			w.unseen[id] = false
		}
	case "prefer":
		w.replay(w.PreferLeaders(10))
	case "settle":
		w.replay(w.SettleLeaderless())
	case "elect":
		_, records := w.ElectLeaders(kmsg.NewPtrElectLeadersRequest())
		w.replay(records)
	case "reassign":
		w.reassign(t)
	case "resign":
		w.throwAway(id)
	case "min in sync":
		w.minInSync = rapid.IntRange(1, 3).Draw(t, "min in sync")
		w.alter("min.insync.replicas", strconv.Itoa(w.minInSync))
	}
}

// produce acknowledges a record: every member of the ISR has it then.
func (w *safetyWorld) produce() {
	p := w.partition()
	held := len(p.ISR) < min(w.minInSync, len(p.Replicas)) || len(p.Eligible) > 0
	if p.Leader == kafka.NoBroker || held {
		return
	}
	for _, id := range p.ISR {
		if !w.replicas[id].running {
			return // The high watermark does not move.
		}
	}
	w.acknowledged++
	for _, id := range p.ISR {
		w.replicas[id].has = w.acknowledged
	}
}

// throwAway has a replica resign, and throw its log away where that was granted.
func (w *safetyWorld) throwAway(id kafka.BrokerID) {
	if !w.replicas[id].running {
		return
	}
	w.resign(id)
	p := w.partition()
	if p.Leader != kafka.NoBroker && !slices.Contains(p.ISR, id) && !slices.Contains(p.Eligible, id) {
		w.replicas[id].has = 0
	}
}

// boot starts a broker's process.
func (w *safetyWorld) boot(id kafka.BrokerID, clean bool) {
	r := w.replicas[id]
	previous := int64(-1)
	if b, _ := w.Image().Broker(id); clean && len(b.Directories) > 0 && b.Directories[0][1] == r.disk {
		previous = int64(b.Epoch)
	}
	req := registration(int32(id), previous)
	req.LogDirs = [][16]byte{{0xd0, r.disk}}
	switch resp := w.start(req); kafka.Code(resp.ErrorCode) {
	case kafka.ErrNone:
		r.running = true
		w.unseen[id] = false
	case kafka.ErrDuplicateBrokerRegistration: // Not before its session is over.
	default:
		w.Fatalf("broker %d: %v", id, kafka.Code(resp.ErrorCode))
	}
}

// catchUp has a replica copy what the leader has, and the leader let it in.
func (w *safetyWorld) catchUp(id kafka.BrokerID) {
	p, r := w.partition(), w.replicas[id]
	if p.Leader == kafka.NoBroker || !w.replicas[p.Leader].running || !r.running ||
		!slices.Contains(p.Replicas, id) {
		return
	}
	r.has = w.replicas[p.Leader].has
	if !slices.Contains(p.ISR, id) {
		w.join(id)
	}
}

func (w *safetyWorld) reassign(t *rapid.T) {
	replicas := rapid.SliceOfNDistinct(rapid.Int32Range(1, 3), 1, 3, rapid.ID[int32]).Draw(t, "to")
	if rapid.IntRange(0, 3).Draw(t, "cancel") == 0 {
		replicas = nil
	}
	_, records := w.AlterPartitionReassignments(moveRequest("a", 0, replicas...))
	w.replay(records)
}

func (w *safetyWorld) check(before metadata.Partition) {
	w.Helper()
	p := w.partition()
	if p.LeaderEpoch < before.LeaderEpoch || p.PartitionEpoch < before.PartitionEpoch {
		w.Fatalf("epochs go back: %+v after %+v", p, before)
	}
	if p.Leader != before.Leader && p.LeaderEpoch == before.LeaderEpoch {
		w.Fatalf("another leader in the same epoch: %+v after %+v", p, before)
	}
	if p.Leader == kafka.NoBroker {
		return
	}
	if r := w.replicas[p.Leader]; r.running && r.has < w.acknowledged {
		w.Fatalf("broker %d leads with %d of %d records: %+v", p.Leader, r.has, w.acknowledged, p)
	}
}
