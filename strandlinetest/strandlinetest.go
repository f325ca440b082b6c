// Package strandlinetest gives a Go test a real Strandline broker in one line:
//
//	srv := strandlinetest.Start(t)
//	client, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()))
//
// The broker is the product itself, not a fake: it checks, syncs (to a disk in
// memory) and rebalances as it does in production. StartCluster runs several of them
// that replicate, to be killed, paused, cut off and filled up: docs/testing.md lists
// what can be done to them.
package strandlinetest

import (
	"log/slog"
	"testing"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/logtest"
)

// Option changes how Start runs the broker.
type Option func(*strandline.Config)

// WithSetting sets a Kafka broker setting, such as num.partitions.
func WithSetting(name, value string) Option {
	return func(c *strandline.Config) { c.Settings[name] = value }
}

// OnDisk keeps the data in a directory of the test's instead of in memory; each node of
// a cluster in one of its own below it.
func OnDisk(dir string) Option {
	return func(c *strandline.Config) { c.DataDir = dir }
}

// WithHTTP serves HTTP as well, on a free loopback port: see Server.HTTPAddr.
func WithHTTP() Option {
	return func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" }
}

// Start runs a broker in memory on a free loopback port until the test ends. If
// the test fails, the broker's log is printed. Groups form at once
// (group.initial.rebalance.delay.ms=0).
func Start(t testing.TB, options ...Option) *strandline.Server {
	t.Helper()
	log := &logtest.Log{}
	c := strandline.Config{
		Settings: map[string]string{"group.initial.rebalance.delay.ms": "0"},
		Logger:   slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, o := range options {
		o(&c)
	}
	srv, err := strandline.Start(t.Context(), c)
	if err != nil {
		t.Fatalf("start strandline: %v\n%s", err, log)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("strandline ended badly: %v", err)
		}
		if t.Failed() {
			t.Logf("strandline's log:\n%s", log)
		}
	})
	return srv
}
