package partition

import (
	"context"
	"log/slog"
	"time"
)

// Watchdog has others lead when the disk under a broker does not answer: nothing that
// waits for it will be acknowledged, and nobody but this broker knows.
type Watchdog struct {
	Table *Table
	// Hanging returns for how long the disk has not answered what was asked of it.
	Hanging func() time.Duration
	Now     func() time.Time
	Logger  *slog.Logger
}

// A disk hangs when it has not answered for hangsAfter, which is looked at every
// watchInterval.
const (
	hangsAfter    = 2 * time.Second
	watchInterval = 250 * time.Millisecond
)

// Run watches until ctx ends.
func (w *Watchdog) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	hung := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		since := w.Hanging()
		if hangs := since >= hangsAfter; hangs != hung {
			hung = hangs
			if hangs {
				w.Logger.Error("the disk does not answer: partitions go to other brokers where those can lead",
					"since", since)
			} else {
				w.Logger.Warn("the disk answers again")
			}
		}
		if !hung {
			continue
		}
		now := w.Now()
		w.Table.All(func(p *Partition) bool {
			p.HandOver(now)
			return true
		})
	}
}
