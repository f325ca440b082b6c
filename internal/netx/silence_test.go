package netx_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/internal/netx"
)

// Both ends of a connection give it up after the time without an acknowledgement that was
// asked for, in whole seconds, or leave that to the kernel.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		silence               time.Duration
		timeoutMs, idle, keep int
	}{
		{0, 0, 15, 3},
		{time.Second, 2000, 1, 1},
		{2 * time.Second, 2000, 1, 1},
		{2100 * time.Millisecond, 3000, 1, 2},
	} {
		network := netx.TCP{Silence: c.silence}
		l, err := network.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		near, far := pair(t, l, network)
		for name, end := range map[string]net.Conn{"dialed": near, "accepted": far} {
			for option, want := range map[int]int{
				unix.TCP_USER_TIMEOUT: c.timeoutMs, unix.TCP_KEEPIDLE: c.idle, unix.TCP_KEEPCNT: c.keep,
			} {
				if got := socketOption(t, end, option); got != want {
					t.Errorf("silence %v, %s: option %d is %d, want %d", c.silence, name, option, got, want)
				}
			}
		}
	}
}

func socketOption(t *testing.T, c net.Conn, option int) (value int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got error
	if err := raw.Control(func(fd uintptr) { value, got = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) }); err != nil {
		t.Fatal(err)
	}
	if got != nil {
		t.Fatal(got)
	}
	return value
}
