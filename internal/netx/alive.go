package netx

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Alive reports whether a connection on which nothing is due seems to be whole: the
// other side has neither closed it nor sent anything. It does not wait. Of a
// connection without a socket it believes the best.
func Alive(c net.Conn) bool {
	if layered, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = layered.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = errors.Is(err, unix.EAGAIN)
		return true
	})
	return alive && err == nil
}
