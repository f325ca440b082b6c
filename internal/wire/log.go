package wire

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// logInterval is the least time between two lines about the same reason.
const logInterval = 5 * time.Second

// closeLog writes one line for connections that had to be closed, and few lines
// for many of them: strangers must not fill the log.
type closeLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	reasons [closeReasonCount]struct {
		last       time.Time
		suppressed int
	}
}

// worthTelling says which reasons an operator wants to know of.
func (r CloseReason) worthTelling() bool {
	switch r {
	case ClosedByPeer, ClosedForStop, ClosedIdle, ClosedDetached:
		return false
	default:
		return true
	}
}

func (l *closeLog) write(reason CloseReason, listener string, remote net.Addr, err error) {
	if !reason.worthTelling() {
		return
	}
	now := time.Now()
	l.mu.Lock()
	r := &l.reasons[reason]
	if !r.last.IsZero() && now.Sub(r.last) < logInterval {
		r.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := r.suppressed
	r.last, r.suppressed = now, 0
	l.mu.Unlock()
	logger := l.logger
	if suppressed > 0 {
		logger = logger.With("suppressed", suppressed)
	}
	logger.Warn("connection closed", "listener", listener,
		"remote", remote.String(), "reason", reason.String(), "error", err)
}
