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
}

// keepAlive finds a dead peer about 45 seconds after its last sign of life.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3,
	}
}

// Listen implements Network.
func (t TCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive(), Control: t.control}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// Dial implements Network.
func (t TCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive(), Control: t.control}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// control sizes the buffers before the socket listens or connects: the window
// scale is agreed on in the handshake, and accepted sockets inherit the sizes.
func (t TCP) control(_, _ string, raw syscall.RawConn) error {
	var err error
	set := func(fd uintptr) {
		if t.SendBufferBytes > 0 {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, t.SendBufferBytes)
		}
		if t.ReceiveBufferBytes > 0 {
			err = errors.Join(err,
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, t.ReceiveBufferBytes))
		}
	}
	return errors.Join(raw.Control(set), err)
}
