package wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Options are what a Server is made of.
type Options struct {
	// Listeners accept connections; the server closes them.
	Listeners []Listener
	// APIs returns the row of the table for a request's key.
	APIs func(key int16) (API, bool)
	// Limits bound what strangers can make the server spend.
	Limits Limits
	// Logger gets one line per connection that had to be closed, and no more
	// than one of a kind in a few seconds.
	Logger *slog.Logger
	// Events observe; all of it may be nil.
	Events Events
}

// Listener is an address that clients connect to.
type Listener struct {
	// Name is Kafka's name for it, such as PLAINTEXT.
	Name string
	// Listener accepts the connections.
	Listener net.Listener
	// TLS is nil on a plaintext listener.
	TLS *tls.Config
}

// Limits bound what strangers can make the server spend. Names in the comments
// are Kafka's.
type Limits struct {
	// MaxRequestBytes is the largest frame (socket.request.max.bytes).
	MaxRequestBytes int
	// MaxQueuedBytes is the memory for requests that are being read or were not
	// released, of all connections (queued.max.request.bytes). One address may
	// take half of it. When it is used up nothing more is read; a single frame may
	// go beyond it.
	MaxQueuedBytes int64
	// MaxAnswerBytes is the memory for answers that were not sent, of all
	// connections (queued.max.response.bytes). When it is used up, requests wait
	// before they are handled.
	MaxAnswerBytes int64
	// MaxUnsentBytes is what the unsent answers of one connection may hold before
	// its next request is read; a single answer may go beyond it.
	MaxUnsentBytes int64
	// MaxConnections is the number of connections (max.connections).
	MaxConnections int
	// MaxConnectionsPerIP is the same for one address of clients
	// (max.connections.per.ip).
	MaxConnectionsPerIP int
	// MaxPipelined is how many answers of one connection may wait before its
	// next request is read.
	MaxPipelined int
	// MaxIdle is how long a connection may have nothing to say
	// (connections.max.idle.ms).
	MaxIdle time.Duration
	// FirstRequestTimeout is how long a new connection may take to complete its
	// first request; with TLS the handshake included.
	FirstRequestTimeout time.Duration
	// StallTimeout is how long a connection may make no progress in the middle of
	// a frame it sends, or in taking an answer.
	StallTimeout time.Duration
	// FrameTimeout is how long the bytes of a frame may take; longer frames get
	// a second more for every MinBytesPerSecond.
	FrameTimeout time.Duration
	// MinBytesPerSecond is what a sender must reach after FrameTimeout.
	MinBytesPerSecond int64
	// Grace is how long answers may take after the server was told to stop.
	Grace time.Duration
}

// DefaultLimits returns the limits of a broker that nobody configured.
func DefaultLimits() Limits {
	return Limits{
		MaxRequestBytes:     100 << 20,
		MaxQueuedBytes:      64 << 20,
		MaxAnswerBytes:      64 << 20,
		MaxUnsentBytes:      4 << 20,
		MaxConnections:      10_000,
		MaxConnectionsPerIP: 1_000,
		MaxPipelined:        128,
		MaxIdle:             10 * time.Minute,
		FirstRequestTimeout: 10 * time.Second,
		StallTimeout:        30 * time.Second,
		FrameTimeout:        30 * time.Second,
		MinBytesPerSecond:   64 << 10,
		Grace:               2 * time.Second,
	}
}

func (o *Options) check() error {
	switch {
	case len(o.Listeners) == 0:
		return errors.New("wire: no listener")
	case o.APIs == nil || o.Logger == nil:
		return errors.New("wire: a table of APIs and a logger are needed")
	}
	return nil
}

func (l *Limits) check() error {
	switch {
	case l.MaxRequestBytes < minRequestBytes || l.MaxRequestBytes > 1<<31-1-lengthBytes:
		return fmt.Errorf("wire: socket.request.max.bytes of %d is out of range", l.MaxRequestBytes)
	case l.MaxQueuedBytes <= 0 || l.MaxAnswerBytes <= 0 || l.MaxUnsentBytes <= 0 || l.MaxConnections <= 0 || l.MaxConnectionsPerIP <= 0 ||
		l.MaxPipelined <= 0 || l.MinBytesPerSecond <= 0:
		return errors.New("wire: every limit of bytes and counts must be positive")
	case l.MaxIdle <= 0 || l.FirstRequestTimeout <= 0 || l.StallTimeout <= 0 ||
		l.FrameTimeout <= 0 || l.Grace < 0:
		return errors.New("wire: every time limit must be positive")
	}
	return nil
}
