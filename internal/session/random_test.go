package session_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/assignor"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/test/seeds"
)

// ledger is who was given records of a partition in which generation.
type ledger struct {
	t      *testing.T
	mu     sync.Mutex
	owners map[string]string
	given  map[string]int
}

func (l *ledger) own(member string, generation, number int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := fmt.Sprintf("partition %d in generation %d", number, generation)
	if other, ok := l.owners[at]; ok && other != member {
		l.t.Errorf("%s: %s and %s", at, other, member)
	}
	l.owners[at] = member
}

// lead assigns as a Kafka client does that leads the group.
func lead(j *kmsg.JoinGroupResponse) []kmsg.SyncGroupRequestGroupAssignment {
	var members []assignor.Member
	for _, m := range j.Members {
		v := kmsg.NewConsumerMemberMetadata()
		if err := v.ReadFrom(m.ProtocolMetadata); err != nil {
			panic(err)
		}
		x := assignor.Member{ID: m.MemberID, Topics: v.Topics, Generation: v.Generation}
		for _, t := range v.OwnedPartitions {
			for _, p := range t.Partitions {
				x.Owned = append(x.Owned, kafka.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		members = append(members, x)
	}
	var all []kmsg.SyncGroupRequestGroupAssignment
	for id, owned := range assignor.New(*j.Protocol, members, map[string]int32{"t": 4}) {
		a := kmsg.NewConsumerMemberAssignment()
		for _, tp := range owned {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
		}
		all = append(all, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
	}
	return all
}

// peerFor is a Kafka member that is there for a while.
func (w *world) peerFor(d time.Duration, strategy string, l *ledger) {
	p := &peer{w: w, strategies: []string{strategy}, generation: -1, patient: true}
	note := func() {
		p.join(lead)
		for _, number := range p.owned {
			l.own("peer "+p.id, p.generation, number)
		}
	}
	note()
	for until := time.Now().Add(d); time.Now().Before(until); pass(700 * time.Millisecond) {
		if p.heartbeat() != kafka.ErrNone {
			note()
		}
	}
	p.leave()
}

// TestRandomLives: whatever comes and goes, a partition has one owner in a
// generation, no record is given twice in a generation, and all are given.
func TestRandomLives(t *testing.T) {
	for seed := range seeds.Of(t, 30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			run(t, 0, func(t *testing.T, w *world) {
				rng := rand.New(rand.NewPCG(seed, 1))
				strategy := []string{"range", "roundrobin", "cooperative-sticky", "sticky"}[seed%4]
				w.createTopic("t", 1, 4)
				l := &ledger{t: t, owners: map[string]string{}, given: map[string]int{}}
				produced := map[string]bool{}
				ends := [4]int{}
				consume := func(member string) int {
					r := session.Consume{
						Member: member, MaxBytes: 1 + rng.IntN(400), Wait: time.Duration(rng.IntN(1500)) * time.Millisecond,
						Terms: session.Terms{Timeout: 6 * time.Second},
					}
					got, b := w.consume(r)
					for _, n := range b.Next {
						l.own(member, b.Generation, n.Partition)
					}
					for _, x := range got {
						at := fmt.Sprintf("%s in generation %d of %d", x, b.Generation, w.restarts)
						if l.given[at]++; l.given[at] > 1 {
							t.Errorf("%s was given twice", at)
						}
						delete(produced, x)
					}
					if len(b.Next) > 0 && rng.IntN(3) > 0 {
						err := w.sessions.Commit(t.Context(), session.Commit{Group: "g", Topic: "t", Member: member, Offsets: b.Next})
						if err != nil && !strings.Contains(err.Error(), "goes to another member") {
							t.Errorf("commit: %v", err)
						}
					}
					return len(got)
				}
				peers := make(chan struct{}, 2)
				for range 80 {
					switch rng.IntN(12) {
					case 0, 1, 2:
						p := rng.IntN(4)
						value := fmt.Sprint("v", ends[p])
						w.produce("t", int32(p), record.CodecNone, value)
						produced[fmt.Sprintf("%d:%d=%s", p, ends[p], value)] = true
						ends[p]++
					case 3:
						pass(time.Duration(rng.IntN(8000)) * time.Millisecond)
					case 4:
						if rng.IntN(4) == 0 && len(peers) == 0 {
							w.restart()
						}
					case 5:
						select {
						case peers <- struct{}{}:
							d := time.Duration(rng.IntN(10_000)) * time.Millisecond
							go func() {
								w.peerFor(d, strategy, l)
								<-peers
							}()
						default:
						}
					default:
						consume([]string{"one", "two", "three"}[rng.IntN(3)])
					}
				}
				pass(time.Minute) // All members are gone, and what was not committed is to be had again.
				for range 50 {
					consume("one")
				}
				if len(produced) > 0 {
					t.Errorf("never given to anybody but a peer: %v", produced)
				}
			})
		})
	}
}
