package wire_test

import (
	"testing"

	"github.com/strandline/strandline/internal/netx"
)

// eachNetwork runs a test over real sockets and in memory.
func eachNetwork(t *testing.T, test func(t *testing.T, network netx.Network)) {
	t.Run("tcp", func(t *testing.T) { test(t, netx.TCP{}) })
	t.Run("memory", func(t *testing.T) { test(t, netx.NewMemory().Host("127.0.0.1")) })
}

func TestEcho(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		b.start()
		c := b.dial()
		for i := range int32(100) {
			c.send(keyEcho, i, "hello")
			c.expect(i, "hello")
		}
	})
}

func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		b.start()
		c := b.dial()
		var all []byte
		all = append(all, frame(keyPark, 0, 1, "first")...)
		all = append(all, frame(keyEcho, 0, 2, "second")...)
		all = append(all, frame(keyPark, 0, 3, "third")...)
		all = append(all, frame(keyMute, 0, 4, "fourth")...)
		all = append(all, frame(keyEcho, 0, 5, "fifth")...)
		c.write(all)
		first, third := b.next(), b.next()
		third.finish() // Out of order.
		first.finish()
		c.expect(1, "first")
		c.expect(2, "second")
		c.expect(3, "third")
		c.expect(5, "fifth")
	})
}
