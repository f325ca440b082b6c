package netx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/netx"
)

// eachNetwork runs a test of what every Network promises.
func eachNetwork(t *testing.T, test func(t *testing.T, n netx.Network)) {
	t.Run("tcp", func(t *testing.T) {
		test(t, netx.TCP{SendBufferBytes: 64 << 10, ReceiveBufferBytes: 64 << 10})
	})
	t.Run("memory", func(t *testing.T) { test(t, netx.NewMemory().Host("127.0.0.1")) })
}

// connect returns both ends of a connection.
func connect(t *testing.T, from, to netx.Network) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := to.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if dialed, err = from.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed, accepted
}

func TestConnection(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n netx.Network) {
		a, b := connect(t, n, n)
		for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
			local, remote := pair[0].LocalAddr().String(), pair[1].RemoteAddr().String()
			if local != remote {
				t.Errorf("one end is %s, the other calls it %s", local, remote)
			}
		}
		// More than any buffer holds, in both directions at once.
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
			go func() { _, _ = pair[0].Write(big) }()
		}
		for _, c := range []net.Conn{a, b} {
			got := make([]byte, len(big))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
				t.Fatalf("read something else: %v", err)
			}
		}
	})
}

func TestCloseIsSeenAfterWhatWasWritten(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n netx.Network) {
		a, b := connect(t, n, n)
		if _, err := a.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		if got, err := io.ReadAll(b); err != nil || string(got) != "last words" {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
	})
}

func TestCloseEndsAWait(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n netx.Network) {
		a, _ := connect(t, n, n)
		failed := make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			failed <- err
		}()
		_ = a.Close()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n netx.Network) {
		a, b := connect(t, n, n)
		_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
		var err error
		for err == nil {
			_, err = a.Write(make([]byte, 1<<20))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		// A deadline in the past ends a wait; one in the future allows reading on.
		failed := make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			failed <- err
		}()
		_ = a.SetDeadline(time.Unix(1, 0))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		_ = a.SetDeadline(time.Time{})
		go func() { _, _ = b.Write([]byte("x")) }()
		if _, err := a.Read(make([]byte, 1)); err != nil {
			t.Errorf("read again: %v", err)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n netx.Network) {
		l, err := n.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Listen(t.Context(), l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listen twice: %v", err)
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		_ = l.Close()
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		_, err = n.Dial(t.Context(), l.Addr().String())
		named := strings.Contains(fmt.Sprint(err), "dial "+l.Addr().String())
		if !errors.Is(err, syscall.ECONNREFUSED) || !named {
			t.Errorf("dial: %v", err)
		}
		for _, bad := range []string{"127.0.0.1", "127.0.0.1:http1", "127.0.0.1:70000"} {
			if _, err := n.Dial(t.Context(), bad); err == nil {
				t.Errorf("dialed %s", bad)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := n.Dial(ended, l.Addr().String()); !errors.Is(err, context.Canceled) {
			t.Errorf("dial in an ended context: %v", err)
		}
	})
}

func TestMemoryDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := netx.NewMemory()
		host := m.Host("127.0.0.1")
		a, b := connect(t, host, host)
		m.SetDelay(3 * time.Second)
		start := time.Now()
		_, _ = a.Write([]byte("x"))
		_ = a.Close()
		if got, err := io.ReadAll(b); err != nil || string(got) != "x" {
			t.Errorf("read %q, %v", got, err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("arrived after %s", d)
		}
	})
}

func TestMemoryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := netx.NewMemory()
		a, b := connect(t, m.Host("10.0.0.2"), m.Host("127.0.0.1"))
		c, d := connect(t, m.Host("10.0.0.3"), m.Host("127.0.0.1"))
		m.Partition("127.0.0.1", "10.0.0.2")
		if n, err := a.Write([]byte("lost")); n != 4 || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		_, _ = c.Write([]byte("x"))
		if _, err := d.Read(make([]byte, 1)); err != nil {
			t.Errorf("the third host is cut off too: %v", err)
		}
		_ = b.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Host("10.0.0.2").Dial(ctx, b.LocalAddr().String())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial: %v", err)
		}
		m.Heal("127.0.0.1", "10.0.0.2")
		_ = b.SetReadDeadline(time.Time{})
		if _, err := a.Write([]byte("again")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write after bytes were lost: %v", err)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after bytes were lost: %v", err)
		}
	})
}

// What one host sends to another can vanish alone: the way back is open.
func TestMemoryPartitionOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := netx.NewMemory()
		a, b := connect(t, m.Host("10.0.0.2"), m.Host("127.0.0.1"))
		m.PartitionOneWay("10.0.0.2", "127.0.0.1")
		_, _ = a.Write([]byte("lost"))
		_ = b.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read over the cut: %v", err)
		}
		_, _ = b.Write([]byte("x"))
		if _, err := a.Read(make([]byte, 1)); err != nil {
			t.Errorf("the way back is cut too: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Host("10.0.0.2").Dial(ctx, b.LocalAddr().String()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial over the cut: %v", err)
		}
		m.Heal("127.0.0.1", "10.0.0.2")
		if _, err := m.Host("10.0.0.2").Dial(t.Context(), b.LocalAddr().String()); err != nil {
			t.Errorf("dial after the cut was healed: %v", err)
		}
	})
}

func TestMemoryReset(t *testing.T) {
	m := netx.NewMemory()
	a, b := connect(t, m.Host("10.0.0.2"), m.Host("127.0.0.1"))
	m.Reset("127.0.0.1", "10.0.0.2")
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write: %v", err)
		}
	}
}

func TestMemoryBacklogIsBounded(t *testing.T) {
	n := netx.NewMemory().Host("127.0.0.1")
	l, err := n.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for {
		c, err := n.Dial(t.Context(), l.Addr().String())
		if err != nil {
			break
		}
		if conns = append(conns, c); len(conns) > 10_000 {
			t.Fatal("no end")
		}
	}
	_ = l.Close()
	for _, c := range conns {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("read: %v", err)
		}
	}
}
