// Package netx is the only door to the network.
//
// Every room that listens or dials gets a Network and uses nothing else, so that
// tests can put whole clusters into one process, on a Memory network that
// refuses, delays, cuts and partitions on command and runs under
// testing/synctest. TCP is the real one.
//
// It assumes Linux. Networks and their connections may be used from any
// goroutine, as package net allows. TLS is deliberately absent: it is a layer
// over connections, and those who listen put it there.
package netx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Network listens and dials on behalf of one host.
type Network interface {
	// Listen accepts connections on address, a host:port; port 0 picks a free
	// one, which the listener's Addr tells.
	Listen(ctx context.Context, address string) (net.Listener, error)
	// Dial connects to address. A host that answers but has no listener there
	// gives an error that is syscall.ECONNREFUSED.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCP is the operating system's network. The zero value is ready for use.
type TCP struct {
	// SendBufferBytes and ReceiveBufferBytes are the socket buffers of accepted
	// connections; 0 or less leaves them to the kernel, which sizes them by
	// need and is the faster choice on anything but a tiny machine.
	SendBufferBytes, ReceiveBufferBytes int
	// Silence is for how long the other host may acknowledge nothing of what it was sent,
	// keep-alives among it, until a connection is given up; 0 leaves it to the kernel, which
	// is patient for a quarter of an hour with what was sent, and 45 seconds with who says
	// nothing. It is rounded up to whole seconds of at least two.
	//
	// A connection that outlives a cut is not as good as before: the kernel sends again after
	// pauses that double, so that what is asked on it when the cut is over waits for as long
	// again as that had lasted.
	Silence time.Duration
}

// keepAlive finds a dead peer about 45 seconds after its last sign of life, or after Silence.
func (t TCP) keepAlive() net.KeepAliveConfig {
	if t.Silence > 0 {
		const often = time.Second // The least there is.
		return net.KeepAliveConfig{Enable: true, Idle: often, Interval: often, Count: int(t.silence()/often) - 1}
	}
	return net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3,
	}
}

func (t TCP) silence() time.Duration {
	return max((t.Silence + time.Second - 1).Truncate(time.Second), 2*time.Second)
}

// Listen implements Network.
func (t TCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: t.keepAlive(), Control: t.control}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// Dial implements Network.
func (t TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: t.keepAlive(), Control: t.control}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// control sizes the buffers before the socket listens or connects: the window
// scale is agreed on in the handshake, and accepted sockets inherit the sizes, as they do
// the time without an acknowledgement.
func (t TCP) control(_, _ string, raw syscall.RawConn) error {
	var err error
	set := func(fd uintptr) {
		if t.Silence > 0 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.silence().Milliseconds()))
		}
		if t.SendBufferBytes > 0 {
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, t.SendBufferBytes))
		}
		if t.ReceiveBufferBytes > 0 {
			err = errors.Join(err,
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, t.ReceiveBufferBytes))
		}
	}
	return errors.Join(raw.Control(set), err)
}
