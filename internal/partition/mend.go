package partition

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Mender has damaged logs made whole, by what other replicas have:
//
//	damage found -> holes between what is whole? -- yes -> filled from any replica that
//	             |                                         has them; see hole.go
//	             -> does not fit, or the log's end is damaged:
//	             -> leads, others in sync?       -- yes -> resigns
//	             -> in sync or eligible?         -- yes -> asks to be neither
//	             -> otherwise: the end is cut off and fetched again, or the files go to
//	                quarantine/ and an empty log is filled anew
//	log offline: the same, without the last step
//
// Where nobody else has the records nothing happens: what is intact is served, and what
// is damaged answered with an error. Meanwhile, and as long as it leads, the same holds.
type Mender struct {
	Applier *Applier
	Peers   Peers
	Now     func() time.Time
	Logger  *slog.Logger

	once sync.Once
	wake chan struct{} // Has room for one.

	mu      sync.Mutex
	patient map[*Partition]*patient
}

// patient is when a damaged replica is looked at again.
type patient struct {
	notBefore time.Time
	noted     bool          // Since it was looked at.
	wait      time.Duration // Zero for no longer than mendRetry.
	waited    time.Duration // The last time.
	told      bool          // That nobody has what is damaged.
}

// mendRetry is how often replicas that can't be replaced yet are looked at, and
// lastMendRetry how often those of which nobody has had the records.
const (
	mendRetry     = time.Second
	lastMendRetry = time.Minute
)

func (m *Mender) init() {
	m.once.Do(func() { m.wake, m.patient = make(chan struct{}, 1), map[*Partition]*patient{} })
}

// Note notes a replica whose log is damaged, or of which the metadata says something
// new. It never blocks.
func (m *Mender) Note(p *Partition) {
	m.init()
	m.mu.Lock()
	c := m.patient[p]
	if c == nil {
		c = &patient{}
		m.patient[p] = c
	}
	c.noted = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run mends until ctx ends. It does nothing while nothing is damaged.
func (m *Mender) Run(ctx context.Context) error {
	m.init()
	for {
		var again <-chan time.Time
		if m.mendAll(ctx) {
			again = time.After(mendRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-again:
		}
	}
}

// mendAll reports whether something is left to be done.
func (m *Mender) mendAll(ctx context.Context) bool {
	for p, c := range m.due() {
		done := m.mend(ctx, p, c)
		m.mu.Lock()
		switch {
		case done && !c.noted:
			delete(m.patient, p)
		case !done:
			c.notBefore = m.Now().Add(c.wait)
		}
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.patient) > 0
}

// due returns the replicas to look at now.
func (m *Mender) due() map[*Partition]*patient {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, due := m.Now(), map[*Partition]*patient{}
	for p, c := range m.patient {
		if c.noted || !now.Before(c.notBefore) {
			c.noted, due[p] = false, c
		}
	}
	return due
}

func (m *Mender) isHere(p *Partition) bool {
	return m.Applier.Table.GetByID(p.id.ID, p.id.Partition) == p
}

// mend does what can be done now for one replica, and reports whether that was all.
func (m *Mender) mend(ctx context.Context, p *Partition, c *patient) bool {
	c.wait = 0
	if !p.Damaged() || !m.isHere(p) {
		return true
	}
	if p.broken.Load() && !p.aside.damaged.Load() {
		return p.StepAside(m.Now()) // And no more: what is there is whole, as far as anybody knows.
	}
	if !p.aside.damaged.Load() {
		return m.mendHoles(ctx, p, c)
	}
	if !p.StepAside(m.Now()) {
		return false
	}
	end := p.log.LogEndOffset()
	if p.log.Corrupt() {
		if done, err := m.Applier.cutDamage(p); done || err != nil {
			return m.cutDone(p, end, err)
		}
	}
	done, err := m.Applier.replace(p)
	switch {
	case err != nil:
		m.Logger.Error("a damaged replica is not replaced: it is out of service until a restart", "topic", p.topic,
			"partition", p.id.Partition, "error", err)
		return true
	case done:
		m.Logger.Warn("a damaged replica was put aside and is fetched anew from its leader", "topic", p.topic,
			"partition", p.id.Partition, "put_aside", "quarantine/", "log_end", end)
	}
	return done
}

func (m *Mender) cutDone(p *Partition, end kafka.Offset, err error) bool {
	if err != nil {
		m.Logger.Error("the damaged end of a replica's log is not cut off: trying again", "topic", p.topic,
			"partition", p.id.Partition, "error", err)
		return false
	}
	m.Logger.Warn("the damaged end of a replica's log was cut off and is fetched again from its leader",
		"topic", p.topic, "partition", p.id.Partition, "from", p.log.LogEndOffset(), "to", end)
	return !p.Damaged()
}

// cutDamage cuts the damaged end off a replica's log, if nobody counts on it. It reports
// false if there is nothing whole before it.
func (a *Applier) cutDamage(p *Partition) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := p.mayBeReplaced(); !ok || a.Table.GetByID(p.id.ID, p.id.Partition) != p {
		return false, nil
	}
	done, err := p.cutDamage()
	if done && err == nil {
		a.moved(p)
	}
	return done, err
}

// replace puts a replica's log aside and begins with an empty one in its place, if nobody
// counts on it.
func (a *Applier) replace(p *Partition) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	following, ok := p.mayBeReplaced()
	if !ok || a.Table.GetByID(p.id.ID, p.id.Partition) != p {
		return false, nil
	}
	config, settings := p.log.Config(), p.settingsNow()
	if p.marks != nil {
		if err := p.marks.Lower(p.id, 0); err != nil {
			return false, err
		}
	}
	p.Resign(true)
	a.moved(p)
	if err := a.Storage.Quarantine(p.id); err != nil {
		return false, fmt.Errorf("put %s-%d aside: %w", p.topic, p.id.Partition, err)
	}
	fresh, err := a.open(p.topic, p.id, config, settings)
	if err != nil {
		return false, err
	}
	if _, err := fresh.BecomeFollower(following); err != nil {
		return false, err
	}
	a.Table.Edit(func(e *Edit) { e.Put(fresh) })
	a.moved(fresh)
	return true, nil
}

func (p *Partition) settingsNow() Settings {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.settings
}
