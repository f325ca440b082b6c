// Package strandline runs a Strandline broker inside a Go program: the same
// broker that the command line starts.
//
//	srv, err := strandline.Start(ctx, strandline.Config{DataDir: "queue"})
//	if err != nil { ... }
//	defer srv.Close()
//	// Any Kafka client connects to srv.Addr().
//
// With an empty Config it is a complete single-node queue in memory on a port of
// the kernel's choosing. Tests have it in one line: see package strandlinetest.
package strandline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

// Config says how to run a broker. The zero value runs one in memory on a free
// loopback port.
type Config struct {
	// DataDir is the directory to keep everything in; it is made if it is not
	// there. Empty keeps everything in memory, gone with Close.
	DataDir string
	// Listen is the address for Kafka clients; empty is 127.0.0.1:0.
	Listen string
	// Advertise is the host:port that clients are told to connect to; empty is
	// the address listened on. A host alone keeps the port listened on.
	Advertise string
	// HTTPListen is the address for HTTP; empty listens nowhere.
	HTTPListen string
	// DebugListen is the address for pprof; empty listens nowhere.
	DebugListen string
	// NodeID is this broker's id; 0 is 1.
	NodeID int32
	// Rack is where this broker stands (broker.rack).
	Rack string
	// ClusterListen is the address for the other brokers of a cluster; empty runs
	// this broker alone. ClusterAdvertise is the host:port that they are told, empty
	// the address listened on. Voters are the brokers that elect the controller, with
	// the addresses of their cluster listeners: the same on each of them at the first
	// start, at which all of them have to be there. A broker that is none of them
	// joins those.
	ClusterListen    string
	ClusterAdvertise string
	Voters           []Voter
	// ClusterListener, if set, is listened on in the place of ClusterListen: so that
	// ports of the kernel's choosing are known before brokers are told of them.
	ClusterListener net.Listener
	// TLS encrypts the listeners for Kafka clients and for HTTP; the zero value leaves
	// them in plaintext. With a CA, clients must have a certificate of it.
	TLS TLSFiles
	// ClusterTLS encrypts what goes between brokers; all three files are needed, and all
	// brokers have certificates of one CA.
	ClusterTLS TLSFiles
	// Settings are Kafka broker settings by name, such as num.partitions.
	Settings map[string]string
	// Logger takes the broker's log; nil discards it.
	Logger *slog.Logger
	// Metrics, if set, takes the broker's metrics until Close, beside what /metrics of
	// HTTPListen shows: all but the series of single partitions, and those of the Go
	// runtime and the process, which are this program's own. Several brokers in one
	// program need registerers that tell them apart, as those of
	// prometheus.WrapRegistererWith do.
	Metrics prometheus.Registerer
}

// TLSFiles names files in PEM form: a certificate with those between it and its CA,
// its private key, and the CA whose signature the other side must have. They are read
// again when they change.
type TLSFiles struct {
	Cert, Key, CA string
}

// Voter is a broker that elects the controller of a cluster.
type Voter struct {
	NodeID  int32
	Address string // Of its cluster listener.
}

// Server is a running broker. Its methods may be called from any goroutine.
type Server struct {
	broker *broker.Broker
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // Set before done is closed.
	close  sync.Once
	files  func() error
}

// Start starts a broker and returns once it serves. The broker runs until Close,
// or until ctx ends. An error says what is wrong with the configuration or the
// data directory and what to do about it.
func Start(ctx context.Context, c Config) (*Server, error) {
	files, closeFiles, err := c.files()
	if err != nil {
		return nil, err
	}
	return c.start(ctx, Ground{FS: files}, closeFiles)
}

// Ground is what a broker stands on in a test that breaks it: a disk and a network
// that fail on command. Only package strandlinetest has them to give.
type Ground struct {
	FS vfs.FS // In the place of DataDir.
	// Network is what other brokers are reached over, Listener what is listened on for
	// Kafka clients, and HTTPListener for HTTP; nil for those of TCP, or none.
	Network                netx.Network
	Listener, HTTPListener net.Listener
	// Opened, if set, is given the broker before it runs.
	Opened func(*broker.Broker)
}

// StartOn is Start on other ground.
func StartOn(ctx context.Context, c Config, g Ground) (*Server, error) {
	return c.start(ctx, g, func() error { return nil })
}

// start starts a broker; closeFiles is called when it has ended.
func (c Config) start(ctx context.Context, g Ground, closeFiles func() error) (*Server, error) {
	logger := c.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	listen := c.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	b, err := broker.New(ctx, broker.Config{
		FS: g.FS, DataDir: c.DataDir, Listen: listen, Advertise: c.Advertise,
		HTTPListen: c.HTTPListen, DebugListen: c.DebugListen,
		NodeID: max(c.NodeID, 1), Rack: c.Rack, Settings: c.Settings, Logger: logger,
		ClusterListen: c.ClusterListen, ClusterAdvertise: c.ClusterAdvertise, Voters: c.voters(),
		ClusterListener: c.ClusterListener, TLS: certs.Files(c.TLS), ClusterTLS: certs.Files(c.ClusterTLS),
		Network: g.Network, Listener: g.Listener, HTTPListener: g.HTTPListener,
		Metrics: c.Metrics,
	})
	if err != nil {
		return nil, errors.Join(err, closeFiles())
	}
	if g.Opened != nil {
		g.Opened(b)
	}
	run, cancel := context.WithCancelCause(ctx)
	s := &Server{broker: b, cancel: cancel, done: make(chan struct{}), files: closeFiles}
	go s.run(run) // Owned by s; ends with Close or ctx.
	select {
	case <-b.Ready():
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("start broker: %w", s.err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.Close())
	}
}

func (s *Server) run(ctx context.Context) {
	s.err = errors.Join(s.broker.Run(ctx), s.files())
	s.cancel(nil)
	close(s.done)
}

func (c Config) voters() []broker.Voter {
	var voters []broker.Voter
	for _, v := range c.Voters {
		voters = append(voters, broker.Voter{ID: kafka.BrokerID(v.NodeID), Address: v.Address})
	}
	return voters
}

func (c Config) files() (vfs.FS, func() error, error) {
	if c.DataDir == "" {
		return memfs.New(), func() error { return nil }, nil
	}
	files, err := osfs.Open(c.DataDir)
	if err != nil {
		return nil, nil, err
	}
	return files, files.Close, nil
}

// Addr returns the host:port that Kafka clients are told to connect to: what was
// advertised, or else the address listened on. With Config.Advertise it need not
// lead here; see ListenAddr.
func (s *Server) Addr() string { return s.broker.Addr() }

// ListenAddr returns the host:port that the broker listens on for Kafka clients,
// with the port that the kernel chose where none was given.
func (s *Server) ListenAddr() string { return s.broker.ListenAddr() }

// HTTPAddr returns the host:port of the HTTP listener, or "".
func (s *Server) HTTPAddr() string { return s.broker.HTTPAddr() }

// DebugAddr returns the host:port of the pprof listener, or "".
func (s *Server) DebugAddr() string { return s.broker.DebugAddr() }

// Wait returns when the broker has ended: nil after Close or the end of its
// context, else why it ended.
func (s *Server) Wait() error {
	<-s.done
	return s.err
}

// Close stops the broker cleanly and returns when it has ended. It may be
// called more than once.
func (s *Server) Close() error {
	s.close.Do(func() { s.cancel(nil) })
	return s.Wait()
}

// Kill ends the broker as the end of its process would, as far as a part of a process
// can: other brokers are told nothing, and it is not marked as stopped cleanly. It
// returns when the broker has ended.
func (s *Server) Kill() {
	s.close.Do(func() { s.cancel(broker.ErrKilled) })
	<-s.done
}
