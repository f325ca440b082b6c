package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/express"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/netx"
)

// sideDoor is an HTTP listener beside the Kafka one; nil where none is
// configured.
type sideDoor struct {
	listener *netx.Limited
	opening  net.Listener    // The same, or TLS over it.
	secure   *certs.Listener // That; nil without.
	routes   []express.Route // What goes by the express lane.
	server   *http.Server
	log      *slog.Logger
	// When a refused connection and a failed handshake were last logged, in nanoseconds.
	lastLog, lastInsecure atomic.Int64
	turned                chan struct{} // Holds a token for each connection that is told that it is one too many.
	// within makes the contexts of requests here what they are; nil leaves them.
	within func(context.Context) context.Context
	// conns are the goroutines that serve connections, and the requests on them: run
	// waits for all of them.
	conns sync.WaitGroup
}

// openSideDoor takes a listener, or listens on address, with TLS if there is a source
// of certificates; neither is no door. The handler comes later, before run.
func openSideDoor(
	l net.Listener, address string, s *config.Broker, source *certs.Source, logger *slog.Logger,
) (*sideDoor, error) {
	switch {
	case l != nil:
	case address == "":
		return nil, nil
	default:
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return nil, fmt.Errorf("listen for HTTP: %w", err)
		}
	}
	d := newSideDoor(s, logger)
	d.listener = netx.NewLimited(l, netx.Limits{
		InAll: int(s.MaxConnections), ByAddress: int(s.MaxConnectionsPerIP), Refused: d.turnAway,
	})
	d.opening = d.listener
	if source != nil {
		d.secure = certs.Listen(d.listener, source.Server(), d.insecure)
		d.opening = d.secure
	}
	return d, nil
}

// openInnerDoor makes the door that other brokers' requests come through. How many
// connections they may open follows from how many requests they may answer.
func openInnerDoor(l net.Listener, s *config.Broker, logger *slog.Logger) *sideDoor {
	d := newSideDoor(s, logger)
	d.listener = netx.NewLimited(l, netx.Limits{InAll: math.MaxInt, ByAddress: math.MaxInt})
	d.opening = d.listener
	d.within = httpapi.Inside
	return d
}

// newSideDoor makes a door without a listener.
func newSideDoor(s *config.Broker, logger *slog.Logger) *sideDoor {
	d := &sideDoor{log: logger, turned: make(chan struct{}, maxTurnedAway)}
	d.server = &http.Server{
		ReadHeaderTimeout: headTimeout, ReadTimeout: s.HTTPBodyTimeout,
		WriteTimeout: 5 * time.Minute, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), ConnState: d.count,
	}
	return d
}

// insecure says that a client of the listener failed to agree on TLS.
func (d *sideDoor) insecure(from net.Addr, err error) {
	if isTime(&d.lastInsecure) {
		d.log.Warn("HTTPS connection closed: the TLS handshake failed",
			"remote", from.String(), "reason", certs.Explain(err), "error", err)
	}
}

// isTime reports whether the last line of a kind was long ago.
func isTime(last *atomic.Int64) bool {
	now, before := time.Now().UnixNano(), last.Load()
	return now-before >= int64(refusedLogInterval) && last.CompareAndSwap(before, now)
}

// count keeps account of who serves connections. The server begins one before
// Serve can return, so that run waits for all there are.
func (d *sideDoor) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		d.conns.Done()
	}
}

// handle sets the handler, and those of what goes by the express lane.
func (d *sideDoor) handle(h http.Handler, routes ...express.Route) {
	d.server.Handler = httpapi.EndOnPanic(h)
	for _, r := range routes {
		r.Handler = httpapi.EndOnPanic(r.Handler)
		d.routes = append(d.routes, r)
	}
}

// stopGrace is how long requests may take to be answered after the end.
const stopGrace = 2 * time.Second

// The time-outs of connections, beside http.body.timeout.ms.
const (
	headTimeout  = 5 * time.Second
	idleTimeout  = 2 * time.Minute
	writeTimeout = 30 * time.Second // Of short answers; net/http's is set where it begins to write.
)

// run serves until ctx ends, and until nobody answers requests any more. The
// contexts of requests end with it, so that what waits for records stops waiting;
// what is being written is answered first, for a while.
func (d *sideDoor) run(ctx context.Context) error {
	if d == nil {
		return nil
	}
	lane := express.New(express.Options{
		Listener: d.opening, Routes: d.routes,
		IdleTimeout: idleTimeout, RequestTimeout: headTimeout, WriteTimeout: writeTimeout,
	})
	serving, ctx := errgroup.WithContext(ctx)
	if d.within != nil {
		ctx = d.within(ctx)
	}
	d.server.BaseContext = func(net.Listener) context.Context { return ctx }
	serving.Go(func() error {
		if err := lane.Run(ctx, stopGrace); err != nil {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	serving.Go(func() error {
		// It ends with the lane, which passes connections to it.
		if err := d.server.Serve(lane.Rest()); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	serving.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if d.server.Shutdown(grace) != nil {
			_ = d.server.Close()
		}
		return nil
	})
	err := serving.Wait()
	d.conns.Wait()
	return err
}

// addr returns where it listens, or "".
func (d *sideDoor) addr() string {
	if d == nil {
		return ""
	}
	return d.listener.Addr().String()
}

// close stops listening, if run has not.
func (d *sideDoor) close() error {
	if d == nil {
		return nil
	}
	if err := d.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
