package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// sideDoor is an HTTP listener beside the Kafka one; nil where none is
// configured.
type sideDoor struct {
	listener net.Listener
	server   *http.Server
}

// openSideDoor listens on address; the empty address is no door.
func openSideDoor(address string, h http.Handler) (*sideDoor, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	return &sideDoor{listener: l, server: &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}}, nil
}

// run serves until ctx ends.
func (d *sideDoor) run(ctx context.Context) error {
	if d == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = d.server.Close() })
	defer stop()
	if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
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
