package insync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/insync"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

const maxLag = 10 * time.Second

// leader is a broker that leads partitions which broker 2 follows, and a controller
// whose answers the test writes.
type leader struct {
	t       *testing.T
	table   *partition.Table
	changes *insync.Changes

	mu       sync.Mutex
	requests []*kmsg.AlterPartitionRequest
	// answer decides about a request; nil grants it.
	answer func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
	lost   time.Time // When broker 2 had no connection any more.
}

func (l *leader) unheard(kafka.BrokerID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost.IsZero() {
		return 0
	}
	return time.Since(l.lost)
}

// leading runs a test in a bubble of virtual time with so many partitions.
func leading(t *testing.T, partitions int, isr []kafka.BrokerID, test func(t *testing.T, l *leader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir, err := commitlog.OpenDir(memfs.New(), commitlog.DirOptions{
			Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"}, BallastBytes: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		l := &leader{t: t, table: partition.NewTable()}
		l.changes = insync.New(insync.Options{
			Self: 1, BrokerEpoch: func() kafka.BrokerEpoch { return 11 }, Controller: l, Partitions: l.table,
			MaxLag: func() time.Duration { return maxLag }, Unheard: l.unheard, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler),
		})
		l.table.Edit(func(e *partition.Edit) {
			for i := range partitions {
				id := kafka.TopicIDPartition{ID: kafka.TopicID{1}, Partition: int32(i)}
				p, err := partition.New(partition.Options{
					Topic: "orders", ID: id, Self: 1, Settings: partition.Settings{MaxLag: maxLag}, Wants: l.changes.Want,
				}, func(c partition.Callbacks) (*commitlog.Log, error) {
					return dir.Log(id, commitlog.Options{
						Config: commitlog.DefaultConfig(), OnDurable: c.OnDurable, OnFailed: c.OnFailed,
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				e.Put(p)
				l.lead(p, 3, 5, isr)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := l.changes.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		test(t, l)
		cancel()
		running.Wait()
		if err := dir.Close(true); err != nil {
			t.Error(err)
		}
	})
}

func (l *leader) lead(p *partition.Partition, epoch kafka.LeaderEpoch, at kafka.PartitionEpoch, isr []kafka.BrokerID) {
	l.t.Helper()
	err := p.BecomeLeader(partition.Leadership{
		Replicas: []kafka.BrokerID{1, 2}, ISR: isr, LeaderEpoch: epoch, PartitionEpoch: at,
	}, time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	l.changes.Want(p)
}

// AlterPartition implements insync.Controller.
func (l *leader) AlterPartition(
	_ context.Context, req *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, error) {
	l.mu.Lock()
	l.requests = append(l.requests, req)
	answer := l.answer
	l.mu.Unlock()
	if answer == nil {
		answer = granted
	}
	return answer(req)
}

// granted answers that all is as wanted.
func granted(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	return decide(req, 0), nil
}

func decide(req *kmsg.AlterPartitionRequest, code kafka.Code) *kmsg.AlterPartitionResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID = t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.PartitionEpoch = p.Partition, int16(code), p.PartitionEpoch+1
			for _, m := range p.NewEpochISR {
				rp.ISR = append(rp.ISR, m.BrokerID)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (l *leader) answerWith(answer func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// asked returns the requests so far.
func (l *leader) asked() []*kmsg.AlterPartitionRequest {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// fetch has broker 2 fetch from the end of a partition's log.
func (l *leader) fetch(i int32) {
	l.t.Helper()
	p := l.table.Get("orders", i)
	_, err := p.ReadAsReplica(partition.ReplicaFetch{
		Replica: 2, BrokerEpoch: 22, LeaderEpoch: p.LeaderEpoch(), LastEpoch: kafka.NoLeaderEpoch, Now: time.Now(),
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *leader) inSync(i int32) int {
	n, _, _ := l.table.Get("orders", i).InSync()
	return n
}

// TestChangesGoTogether: what is wanted while a request is under way goes into one more,
// with all epochs that are compared.
func TestChangesGoTogether(t *testing.T) {
	leading(t, 100, []kafka.BrokerID{1}, func(t *testing.T, l *leader) {
		l.answerWith(func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			<-time.After(time.Second)
			return granted(req)
		})
		l.fetch(0)
		synctest.Wait()
		for i := range int32(100) {
			l.fetch(i)
		}
		<-time.After(3 * time.Second)
		asked := l.asked()
		if len(asked) != 2 || len(asked[1].Topics) != 1 || len(asked[1].Topics[0].Partitions) != 99 {
			t.Fatalf("%d requests", len(asked))
		}
		req := asked[0]
		p := req.Topics[0].Partitions[0]
		if got := fmt.Sprint(req.Version, req.BrokerID, req.BrokerEpoch, p.LeaderEpoch, p.PartitionEpoch, p.NewISR); got != "3 1 11 3 5 [1 2]" {
			t.Errorf("request %s", got)
		}
		if m := p.NewEpochISR; len(m) != 2 || m[0].BrokerEpoch != 11 || m[1].BrokerEpoch != 22 {
			t.Errorf("members %+v", m)
		}
		for i := range int32(100) {
			if l.inSync(i) != 2 {
				t.Errorf("partition %d has %d in sync", i, l.inSync(i))
			}
		}
	})
}

// TestAskedAgain: until the controller settles it, with what is wanted by then.
func TestAskedAgain(t *testing.T) {
	for name, answer := range map[string]func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){
		"no answer": func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			return nil, errors.New("lost")
		},
		"not the controller": func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
			resp.ErrorCode = int16(kafka.ErrNotController)
			return resp, nil
		},
		"somebody was faster": func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			return decide(req, kafka.ErrInvalidUpdateVersion), nil
		},
		"nothing said": func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			return req.ResponseKind().(*kmsg.AlterPartitionResponse), nil
		},
	} {
		leading(t, 1, []kafka.BrokerID{1}, func(t *testing.T, l *leader) {
			l.answerWith(answer)
			l.fetch(0)
			<-time.After(20 * time.Second)
			if n := len(l.asked()); n < 10 || n > 40 {
				t.Errorf("%s: asked %d times in 20 s", name, n)
			}
			if _, ok := l.table.Get("orders", 0).WantedISR(); !ok || l.inSync(0) != 1 {
				t.Errorf("%s: taken for settled", name)
			}
			// The metadata says that it was granted after all.
			l.lead(l.table.Get("orders", 0), 3, 6, []kafka.BrokerID{1, 2})
			<-time.After(2 * time.Second)
			n := len(l.asked())
			<-time.After(20 * time.Second)
			if l.fetch(0); len(l.asked()) != n || l.inSync(0) != 2 {
				t.Errorf("%s: asked %d times more; %d in sync", name, len(l.asked())-n, l.inSync(0))
			}
		})
	}
}

// TestRefused: one that is refused for sure is not asked for with each of its fetches.
func TestRefused(t *testing.T) {
	leading(t, 1, []kafka.BrokerID{1}, func(t *testing.T, l *leader) {
		l.answerWith(func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			return decide(req, kafka.ErrIneligibleReplica), nil
		})
		for range 100 {
			l.fetch(0)
			<-time.After(100 * time.Millisecond)
		}
		if n := len(l.asked()); n < 9 || n > 11 {
			t.Errorf("asked %d times in 10 s", n)
		}
	})
}

// TestFollowersAreLookedAt while there are any: one that is behind is wanted out.
func TestFollowersAreLookedAt(t *testing.T) {
	leading(t, 1, []kafka.BrokerID{1, 2}, func(t *testing.T, l *leader) {
		<-time.After(3 * maxLag) // It has never fetched.
		asked := l.asked()
		if len(asked) != 1 || len(asked[0].Topics[0].Partitions[0].NewISR) != 1 {
			t.Errorf("%d requests", len(asked))
		}
		l.lead(l.table.Get("orders", 0), 3, 6, []kafka.BrokerID{1})
		if l.inSync(0) != 1 {
			t.Errorf("%d in sync when the metadata has it", l.inSync(0))
		}
	})
}

// TestNothingToDo: without partitions that others follow Run never wakes.
func TestNothingToDo(t *testing.T) {
	leading(t, 0, nil, func(t *testing.T, l *leader) {
		begin := time.Now()
		<-time.After(1000 * time.Hour)
		if time.Since(begin) != 1000*time.Hour || len(l.asked()) != 0 {
			t.Error("something happened")
		}
	})
}

// TestSevered: a follower without a connection is wanted out soon, of the partitions that wait
// for it.
func TestSevered(t *testing.T) {
	leading(t, 2, []kafka.BrokerID{1, 2}, func(t *testing.T, l *leader) {
		l.fetch(0)
		l.fetch(1)
		l.mu.Lock()
		l.lost = time.Now()
		l.mu.Unlock()
		<-time.After(3 * time.Second)
		if n := len(l.asked()); n != 0 {
			t.Errorf("asked %d times while nobody waits for the follower", n)
		}
		b := record.NewBuilder(record.CodecNone, 0)
		b.Append(time.Now().UnixMilli(), nil, []byte("v"), nil)
		batch, _, err := record.Next(b.Build())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.table.Get("orders", 1).Append([]record.Batch{batch}, partition.AcksAll, time.Now()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		asked := l.asked()
		if len(asked) != 1 || len(asked[0].Topics) != 1 || len(asked[0].Topics[0].Partitions) != 1 {
			t.Fatalf("asked %d times", len(asked))
		}
		if p := asked[0].Topics[0].Partitions[0]; p.Partition != 1 || len(p.NewISR) != 1 {
			t.Errorf("asked for %v of partition %d", p.NewISR, p.Partition)
		}
	})
}
