package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/config"
)

// sideDoor is an HTTP listener beside the Kafka one; nil where none is
// configured.
type sideDoor struct {
	listener net.Listener
	server   *http.Server
	most     int64        // Connections that there may be.
	open     atomic.Int64 // Connections that there are.
}

// openSideDoor listens on address; the empty address is no door. The handler may
// come later, before run.
func openSideDoor(address string, h http.Handler, s *config.Broker, logger *slog.Logger) (*sideDoor, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	d := &sideDoor{listener: l, most: int64(s.MaxConnections)}
	d.server = &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: s.HTTPBodyTimeout,
		WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), ConnState: d.count,
	}
	return d, nil
}

// count closes connections that are one too many.
func (d *sideDoor) count(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if d.open.Add(1) > d.most {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		d.open.Add(-1)
	}
}

// handle sets the handler.
func (d *sideDoor) handle(h http.Handler) {
	if d != nil {
		d.server.Handler = h
	}
}

// stopGrace is how long requests may take to be answered after the end.
const stopGrace = 2 * time.Second

// run serves until ctx ends. The contexts of requests end then too, so that what
// waits for records stops waiting; what is being written is answered first.
func (d *sideDoor) run(ctx context.Context) error {
	if d == nil {
		return nil
	}
	d.server.BaseContext = func(net.Listener) context.Context { return ctx }
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if d.server.Shutdown(grace) != nil {
			_ = d.server.Close()
		}
	})
	if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-stopped
	return nil
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
