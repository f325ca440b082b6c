package partition

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Mender replaces replicas whose logs are damaged by new ones, which their leaders fill:
//
//	damage found -> leads, others in sync?  -- yes -> resigns
//	             -> in sync or eligible?    -- yes -> asks to be neither
//	             -> otherwise: files to quarantine/, an empty log, fetched anew
//
// Where nobody else has the records nothing happens: what is intact is served, and what
// is damaged answered with an error. Meanwhile, and as long as it leads, the same holds.
type Mender struct {
	Applier *Applier
	Now     func() time.Time
	Logger  *slog.Logger

	once sync.Once
	wake chan struct{} // Has room for one.

	mu      sync.Mutex
	patient map[*Partition]struct{}
}

// mendRetry is how often replicas that can't be replaced yet are looked at.
const mendRetry = time.Second

func (m *Mender) init() {
	m.once.Do(func() { m.wake, m.patient = make(chan struct{}, 1), map[*Partition]struct{}{} })
}

// Note notes a replica whose log is damaged, or of which the metadata says something
// new. It never blocks.
func (m *Mender) Note(p *Partition) {
	m.init()
	m.mu.Lock()
	m.patient[p] = struct{}{}
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
		if m.mendAll() {
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
func (m *Mender) mendAll() bool {
	m.mu.Lock()
	patients := slices.Collect(maps.Keys(m.patient))
	m.mu.Unlock()
	for _, p := range patients {
		if m.mend(p) {
			m.mu.Lock()
			delete(m.patient, p)
			m.mu.Unlock()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.patient) > 0
}

// mend does what can be done now for one replica, and reports whether that was all.
func (m *Mender) mend(p *Partition) bool {
	if !p.Damaged() || m.Applier.Table.GetByID(p.id.ID, p.id.Partition) != p {
		return true
	}
	if !p.StepAside(m.Now()) {
		return false
	}
	done, err := m.Applier.replace(p)
	switch {
	case err != nil:
		m.Logger.Error("a damaged replica is not replaced: it is out of service until a restart", "topic", p.topic,
			"partition", p.id.Partition, "error", err)
		return true
	case done:
		m.Logger.Warn("a damaged replica was put aside and is fetched anew from its leader", "topic", p.topic,
			"partition", p.id.Partition, "put_aside", "quarantine/", "log_end", p.log.LogEndOffset())
	}
	return done
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
