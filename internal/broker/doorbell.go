package broker

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/reach"
	"github.com/strandline/strandline/internal/wire"
)

// doorbell watches for clients that were told an address and never came to it.
type doorbell struct {
	now     func() time.Time
	log     *slog.Logger
	address string

	mu    sync.Mutex
	watch *reach.Watch
}

// came marks a connection that has done something but asking around.
type came struct{}

func newDoorbell(now func() time.Time, log *slog.Logger) *doorbell {
	return &doorbell{now: now, log: log, watch: reach.New()}
}

func clientOf(r *wire.Request) reach.Client {
	host, _, err := net.SplitHostPort(r.Conn.RemoteAddr().String())
	if err != nil {
		host = r.Conn.RemoteAddr().String()
	}
	return reach.Client{Host: host, ID: r.ClientID}
}

// Asked implements api.Reach.
func (d *doorbell) Asked(r *wire.Request) {
	if r.Conn.Value(came{}) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch.Asked(d.now(), clientOf(r), d.address)
}

// Came implements api.Reach. It costs a look at the connection, but for the
// first time.
func (d *doorbell) Came(r *wire.Request) {
	if r.Conn.Value(came{}) != nil {
		return
	}
	r.Conn.SetValue(came{}, true)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch.Came(d.now(), clientOf(r))
}

// Missing returns the clients that have not come.
func (d *doorbell) Missing() []reach.Finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watch.Missing()
}

// run reports them, until ctx ends.
func (d *doorbell) run(ctx context.Context) error {
	tick := time.NewTicker(reach.Patience / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		d.mu.Lock()
		found := d.watch.Tick(d.now())
		d.mu.Unlock()
		for _, f := range found {
			d.log.Warn("a client was told an address and never came to it: can it resolve and reach it? "+
				"Set --advertise to the name that it can use",
				"client", f.Client.Host, "client_id", f.Client.ID, "advertised", f.Advertised,
				"since", f.Since.Format(time.RFC3339), "asked", f.Asked)
		}
	}
}

// Unreached implements httpapi.Broker.
func (b *Broker) Unreached() []reach.Finding { return b.reach.Missing() }
