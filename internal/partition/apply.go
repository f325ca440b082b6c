package partition

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Storage is the data directory as the applier needs it.
type Storage interface {
	Log(kafka.TopicIDPartition, commitlog.Options) (*commitlog.Log, error)
	Delete(...kafka.TopicIDPartition) error
	Quarantine(kafka.TopicIDPartition) error
}

// Applier makes the table follow the metadata image: it opens, leads, follows
// and deletes partition replicas. Apply must be called for one image after the
// other, by one goroutine at a time.
type Applier struct {
	mu sync.Mutex // Held by whoever changes the table.

	Table   *Table
	Self    kafka.BrokerID
	Storage Storage
	// Configure returns what a topic's configuration means for its partitions.
	Configure func(*metadata.Topic) (commitlog.Config, Settings)
	Now       func() time.Time
	Logger    *slog.Logger
	// Led is told of each partition whose leadership this broker has just taken,
	// Lost of each that it leads no more; both may be nil.
	Led, Lost func(*Partition)
	// Moved is told of each partition that has another leader than before, or the
	// same under another epoch, or none any more; nil for nobody.
	Moved func(*Partition)
	// Wants is told of each partition led here that has begun to want another ISR, and
	// of each that has begun to have followers, which may fall behind; nil for nobody.
	Wants func(*Partition)
	// Eligible reports whether a broker may become a member of an ISR; nil for any.
	Eligible func(kafka.BrokerID, kafka.BrokerEpoch) bool
	// Alive reports whether a broker is not fenced; nil for any.
	Alive func(kafka.BrokerID) bool
	// Troubled is told of each replica whose log is damaged, and again when the metadata
	// says something new of it (Mender.Note); nil for nobody.
	Troubled func(*Partition)
	// Marks keep high watermarks over a restart; nil for none.
	Marks Marks
	// Losing and Throttles are those of Options.
	Losing    func(p *Partition, from, to kafka.Offset)
	Throttles Throttles
}

// Apply follows a change of the image.
func (a *Applier) Apply(d metadata.Delta) {
	a.applyTopics(d)
	if a.Alive == nil {
		return
	}
	back := slices.DeleteFunc(slices.Clone(d.Brokers), func(id kafka.BrokerID) bool { return !a.Alive(id) })
	if len(back) > 0 {
		a.Table.All(func(p *Partition) bool {
			p.mayLetIn(back)
			return true
		})
	}
}

func (a *Applier) applyTopics(d metadata.Delta) {
	if len(d.Topics) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var c changed
	a.Table.Edit(func(e *Edit) {
		for _, t := range d.Topics {
			if t.New == nil {
				if ps := e.Remove(t.Old.Name, t.Old.ID); ps != nil {
					c.gone = append(c.gone, ps...)
				} else {
					// The broker went down before it could delete the files, if there are any.
					for i := range t.Old.Partitions {
						c.files = append(c.files, kafka.TopicIDPartition{ID: t.Old.ID, Partition: int32(i)})
					}
				}
				continue
			}
			a.applyTopic(e, t.New, &c)
		}
	})
	for _, p := range c.gone {
		if p != nil {
			a.withdraw(p)
			c.files = append(c.files, p.id)
		}
	}
	for _, p := range c.led {
		if a.Led != nil {
			a.Led(p)
		}
	}
	for _, p := range c.here {
		// Now that the table has it: what is not there is not cared for.
		if p.Damaged() && a.Troubled != nil {
			a.Troubled(p)
		}
	}
	if len(c.files) == 0 {
		return
	}
	// Last, and all at once: each time takes a sync.
	if err := a.Storage.Delete(c.files...); err != nil {
		a.Logger.Error("files of deleted partitions are still there", "error", err)
	}
}

// changed is what a change of the image did.
type changed struct {
	here []*Partition // Have a role.
	led  []*Partition // Are led under a new epoch.
	gone []*Partition // Deleted, or moved away.
	// files are the logs to delete.
	files []kafka.TopicIDPartition
}

// applyTopic opens what is new, and gives each partition its role.
func (a *Applier) applyTopic(e *Edit, t *metadata.Topic, c *changed) {
	config, settings := a.Configure(t)
	for i := range t.Partitions {
		mp := &t.Partitions[i]
		id := kafka.TopicIDPartition{ID: t.ID, Partition: int32(i)}
		p := e.Get(id)
		if !slices.Contains(mp.Replicas, a.Self) {
			if p != nil {
				e.Drop(p)
				c.gone = append(c.gone, p)
			}
			continue
		}
		if p == nil {
			var err error
			if p, err = a.open(t.Name, id, config, settings); err != nil {
				a.Logger.Error("partition is not available here", "topic", t.Name, "partition", i, "error", err)
				continue
			}
			e.Put(p)
		} else {
			p.log.SetConfig(config)
			p.Configure(settings)
		}
		c.here = append(c.here, p)
		if a.lead(p, mp) {
			c.led = append(c.led, p)
		}
	}
}

func (a *Applier) open(
	topic string, id kafka.TopicIDPartition, config commitlog.Config, settings Settings,
) (*Partition, error) {
	return New(Options{
		Topic: topic, ID: id, Self: a.Self, Settings: settings, Wants: a.Wants, Eligible: a.Eligible,
		Alive: a.Alive, Troubled: a.Troubled, Marks: a.Marks, Losing: a.Losing, Throttles: a.Throttles,
	},
		func(c Callbacks) (*commitlog.Log, error) {
			return a.Storage.Log(id, commitlog.Options{
				Config: config, OnDurable: c.OnDurable, OnFailed: c.OnFailed, OnDamaged: c.OnDamaged,
			})
		})
}

// lead gives a partition the role that the image names and reports whether it
// leads under a new epoch, and can.
func (a *Applier) lead(p *Partition, mp *metadata.Partition) bool {
	if mp.Leader != a.Self {
		led := p.Leads(kafka.NoLeaderEpoch) == nil
		fresh, err := p.BecomeFollower(Following{
			Leader: mp.Leader, LeaderEpoch: mp.LeaderEpoch,
			ISR: mp.ISR, Eligible: mp.Eligible, PartitionEpoch: mp.PartitionEpoch,
		})
		if err != nil {
			a.Logger.Error("leader not followed", "topic", p.topic, "partition", p.id.Partition,
				"leader_epoch", mp.LeaderEpoch, "error", err)
		}
		if led && a.Lost != nil {
			a.Lost(p)
		}
		if fresh {
			a.moved(p)
		}
		return false
	}
	fresh := !p.hasLeadership(mp.LeaderEpoch)
	err := p.BecomeLeader(Leadership{
		Replicas: mp.Replicas, ISR: mp.ISR, Eligible: mp.Eligible,
		LeaderEpoch: mp.LeaderEpoch, PartitionEpoch: mp.PartitionEpoch,
	}, a.Now())
	if err != nil {
		a.Logger.Error("leadership not taken", "topic", p.topic, "partition", p.id.Partition,
			"leader_epoch", mp.LeaderEpoch, "error", err)
		return false
	}
	if fresh {
		a.moved(p)
	}
	if a.Wants != nil && len(mp.Replicas) > 1 {
		a.Wants(p)
	}
	return fresh && p.Leads(mp.LeaderEpoch) == nil
}

func (a *Applier) moved(p *Partition) {
	if a.Moved != nil {
		a.Moved(p)
	}
}

// Reconfigure applies the topics' configuration anew, after the broker's
// defaults have changed.
func (a *Applier) Reconfigure(topics []*metadata.Topic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range topics {
		config, settings := a.Configure(t)
		for i := range t.Partitions {
			if p := a.Table.GetByID(t.ID, int32(i)); p != nil {
				p.log.SetConfig(config)
				p.Configure(settings)
			}
		}
	}
}

// withdraw ends the use of a replica that is deleted here, for good.
func (a *Applier) withdraw(p *Partition) {
	p.Resign(true)
	if a.Lost != nil {
		a.Lost(p)
	}
	a.moved(p)
}
