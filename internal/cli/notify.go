package cli

import "net"

// notify tells the service manager that started us (systemd, Type=notify) how we
// are: READY=1 or STOPPING=1. Without one it does nothing. What cannot be told is
// not an error: the service works as well.
func (a *app) notify(state string) {
	socket := a.vars["NOTIFY_SOCKET"]
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		a.out.warn("the service manager cannot be told %s: %v", state, err)
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(state)); err != nil {
		a.out.warn("the service manager cannot be told %s: %v", state, err)
	}
}
