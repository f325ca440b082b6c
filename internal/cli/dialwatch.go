package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialWatch hears of the client's connections and remembers which advertised
// addresses cannot be reached: the client itself retries them in silence, and
// its user waits and wonders. It is safe for use by the client's goroutines.
type dialWatch struct {
	warn func(format string, args ...any)

	mu     sync.Mutex
	failed map[string]string // Advertised address to what is wrong with it.
	// reached says that some advertised address could be reached.
	reached bool
}

func newDialWatch() *dialWatch { return &dialWatch{failed: map[string]string{}} }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (w *dialWatch) OnBrokerConnect(b kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if b.NodeID < 0 || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // An address that the user gave, or an attempt that was given up.
	}
	address := hostPort(b.Host, b.Port)
	w.mu.Lock()
	_, known := w.failed[address]
	if err == nil {
		delete(w.failed, address)
		w.reached = true
	} else {
		w.failed[address] = fmt.Sprintf("Broker %d advertises %s: %s.", b.NodeID, address,
			dialReason(err))
	}
	w.mu.Unlock()
	if err != nil && !known && w.warn != nil {
		w.warn("broker %d advertises %s, which does not answer from here: %s; trying again",
			b.NodeID, address, dialReason(err))
	}
}

// noteReached notes that a broker is reached by what it advertises.
func (w *dialWatch) noteReached() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = true
}

// reachesNone reports whether advertised addresses were tried, all of them in vain.
func (w *dialWatch) reachesNone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failed) > 0 && !w.reached
}

// advertised describes the advertised addresses that cannot be reached.
func (w *dialWatch) advertised() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]string, 0, len(w.failed))
	for _, what := range w.failed {
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}
