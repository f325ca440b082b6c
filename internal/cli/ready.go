package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// httpAddresses returns where the HTTP listeners of brokers are: as given, or on
// the default port beside brokers on the default port.
func (a *app) httpAddresses(given []string) ([]string, error) {
	var addresses []string
	for _, g := range given {
		addresses = append(addresses, trimScheme(g))
	}
	if len(addresses) > 0 {
		return addresses, nil
	}
	for _, b := range a.flags.brokers {
		host, port, err := net.SplitHostPort(b)
		if err != nil || port != defaultPort {
			return nil, usagef("where is the HTTP listener of the broker at %s?", b).
				hint("Say it with --http HOST:PORT: what strandline start was given as --http-listen.")
		}
		addresses = append(addresses, net.JoinHostPort(host, defaultHTTPPort))
	}
	return addresses, nil
}

func newReady(a *app) *cobra.Command {
	var given []string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Exit with 0 if a broker serves, for health checks",
		Long: "Ask a broker's HTTP listener whether it serves clients (/readyz). The exit code is 0 if\n" +
			"it does, 1 if it says no and 3 if nothing answers. It prints nothing if all is well, so\n" +
			"it fits a container's health check, where there is no shell and no curl. With --wait it\n" +
			"asks again and again, for scripts that have just started brokers.",
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			addresses, err := a.httpAddresses(given)
			if err != nil {
				return err
			}
			until := time.Now().Add(wait)
			for _, address := range addresses {
				if err := a.awaitReady(cmd.Context(), address, until); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for all of them to serve")
	cmd.Flags().StringSliceVar(&given, "http", nil,
		"`addresses` of HTTP listeners of brokers (default port 8080 beside port 9092 of --brokers)")
	return cmd
}

// notReady says why nothing answered over HTTP, and what to do.
func (a *app) notReady(address string, err error) *failure {
	f := newFailure(exitUnreachable, "no broker answers over HTTP at %s: %s", address, dialReason(err))
	f.cause = err
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return f.hint("Is the broker running? Start one with: strandline start").
			hint("If it serves HTTP elsewhere (its --http-listen), say so with --http HOST:PORT.")
	case isTimeout(err):
		return f.hint("It may be starting, or hang, or a firewall drops packets: ask again, with a longer --timeout.")
	}
	return f.hint("Name the broker's HTTP listener (its --http-listen) with --http HOST:PORT.")
}

// readyPause is between two questions whether a broker serves.
const readyPause = 50 * time.Millisecond

// awaitReady asks a broker whether it serves until it does, or the time is over.
func (a *app) awaitReady(ctx context.Context, address string, until time.Time) error {
	for {
		err := a.askReady(ctx, address)
		if err == nil || ctx.Err() != nil || !time.Now().Before(until) {
			return err
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *app) askReady(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, min(a.flags.timeout, probeTimeout))
	defer cancel()
	resp, err := a.get(limited, address, "/readyz")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return a.notReady(address, unwrapURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err != nil || resp.StatusCode != http.StatusOK {
		return failf("%s says: %s", address, strings.TrimSpace(fmt.Sprintf("%s %s", resp.Status, text)))
	}
	return nil
}
