package broker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/strandline/strandline/internal/netx"
)

// refusedLogInterval is the least time between two lines about refused connections.
const refusedLogInterval = 5 * time.Second

// Bounds of what is done for a connection that is one too many.
const (
	// maxTurnedAway is how many are told at a time why, and with TLS in a second, because
	// of what a handshake costs; more are just closed.
	maxTurnedAway = 64
	// turnAwayTime is how long a client may take to take that.
	turnAwayTime = time.Second
	// turnAwayBytes is how much of its request is read meanwhile: what is there unread
	// when a connection is closed makes the other side lose what was sent to it.
	turnAwayBytes = 64 << 10
)

// turnAway answers a connection that is one too many, as far as that is cheap. A
// metric counts those that the log does not name.
func (d *sideDoor) turnAway(c net.Conn, limit netx.Limit, open int) {
	if isTime(&d.lastLog) {
		d.log.Warn("HTTP connection refused: as many are open as the limit allows",
			"remote", c.RemoteAddr().String(), "limit", string(limit), "open", open)
	}
	select {
	case d.turned <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	over := func() { <-d.turned }
	if d.secure != nil {
		c = d.secure.Server(c) // The refusal is the first that is written, after a handshake.
		inASecond := time.Now().Add(turnAwayTime)
		over = func() { time.AfterFunc(time.Until(inASecond), func() { <-d.turned }) }
	}
	d.conns.Go(func() { // Bounded in time and number; run waits for it.
		defer over()
		sayTooMany(c, limit, open)
	})
}

// sayTooMany sends a refusal, before there is a request, and closes the connection.
func sayTooMany(c net.Conn, limit netx.Limit, open int) {
	defer c.Close()
	status, many := http.StatusServiceUnavailable, fmt.Sprintf("%d connections are open", open)
	if limit == netx.LimitByAddress {
		status, many = http.StatusTooManyRequests, fmt.Sprintf("%d connections from your address are open", open)
	}
	body := fmt.Sprintf(`{"error":{"code":"THROTTLING_QUOTA_EXCEEDED","message":"%s, as many as %s allows: `+
		`use those again, or try again later","retriable":true}}`+"\n", many, limit)
	_ = c.SetDeadline(time.Now().Add(turnAwayTime))
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
	if half, ok := c.(interface{ CloseWrite() error }); ok && err == nil && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c, turnAwayBytes) // Until the client has closed it as well.
	}
}
