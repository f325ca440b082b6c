package wire_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// keyDetach has its connection go on with another protocol.
const keyDetach = 1020

// A connection goes on with another protocol behind the answers before it, with what
// was sent with the request; from then on nothing here counts or ends it.
func TestDetach(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		taken := make(chan net.Conn, 1)
		reasons := make(chan wire.CloseReason, 2)
		b.options.Limits.MaxConnections = 1
		b.options.Events.ConnClosed = func(_ *wire.Conn, reason wire.CloseReason, _ error) { reasons <- reason }
		apis := b.options.APIs
		b.options.APIs = func(key int16) (wire.API, bool) {
			if key != keyDetach {
				return apis(key)
			}
			return wire.API{
				Key: keyDetach, FlexibleFrom: flexibleFrom,
				Handle: func(context.Context, *wire.Request) wire.Response {
					return wire.Detach(echoed{[]byte("now")}, func(c net.Conn) { taken <- c })
				},
			}, true
		}
		b.start()
		c := b.dial()
		c.send(keyPark, 1, "ack")
		c.send(keyDetach, 2, "")
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		parked := b.next()
		select {
		case <-taken:
			t.Error("it was taken before the answers")
		case <-time.After(10 * time.Millisecond):
		}
		parked.finish()
		c.expect(1, "ack")
		c.expect(2, "now")
		nc := <-taken
		defer nc.Close()
		if r := <-reasons; r != wire.ClosedDetached {
			t.Errorf("closed because of %s", r)
		}
		if st := b.server.Stats(); st.Connections != 0 || st.QueuedBytes != 0 {
			t.Errorf("%+v", st)
		}
		another := b.dial() // There is room for one.
		another.send(keyEcho, 3, "x")
		another.expect(3, "x")
		b.stop()
		<-b.stopped
		got := make([]byte, 5)
		if _, err := io.ReadFull(nc, got); err != nil || string(got) != "hello" {
			t.Errorf("%q %v", got, err)
		}
		if _, err := io.WriteString(nc, "hi"); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, got[:2]); err != nil || string(got[:2]) != "hi" {
			t.Errorf("%q %v", got[:2], err)
		}
	})
}
