package broker

import (
	"net"
	"sync"
	"time"
)

// sendElsewhere closes the connections of clients that come while the broker waits for others, after
// the time that a start takes mostly, until stop is called. A client that was told of several
// brokers goes on to the next then; kept without an answer, it would wait for as long as its
// time-outs say, which is half a minute by default. Clients of a broker that is alone have nowhere
// else to go, and are kept until it serves.
func (b *Broker) sendElsewhere() (stop func()) {
	// What cannot be told to stop accepting can't be handed on to who serves.
	listener, ok := b.listener.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	if b.cluster == nil || !ok {
		return func() {}
	}
	done := make(chan struct{})
	var turning sync.WaitGroup
	turning.Go(func() { // Ends with stop, which waits for it.
		timer := time.NewTimer(firstWord)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // The deadline of stop; with another, clients are kept.
			}
			_ = conn.Close()
		}
	})
	return func() {
		close(done)
		_ = listener.SetDeadline(time.Unix(1, 0)) // Long over.
		turning.Wait()
		_ = listener.SetDeadline(time.Time{})
	}
}
