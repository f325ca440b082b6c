package api

// Whether followers have a way to this broker. One that is slow keeps its connections, and
// has replica.lag.time.max.ms to catch up; one that the network has cut off from here loses
// them, and may be in touch with the controller all the same. The first is waited for, the
// second is not: see isr.Unheard.

import (
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

// followers counts the connections on which other brokers fetch. The zero value is ready to
// use; it is safe for concurrent use.
type followers struct {
	mu    sync.Mutex
	links map[kafka.BrokerID]*followerLink
}

type followerLink struct {
	conns int
	lost  time.Time // When there were none any more.
}

// followerKey finds, among the values of a connection, which broker fetches on it.
type followerKey struct{}

// maxFollowers bounds how many brokers are remembered.
const maxFollowers = 10_000

// heard notes that a broker fetches on a connection.
func (f *followers) heard(c *wire.Conn, id kafka.BrokerID) {
	if c.Value(followerKey{}) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.links[id]
	switch {
	case l == nil && len(f.links) >= maxFollowers:
		return
	case l == nil:
		l = &followerLink{}
		if f.links == nil {
			f.links = map[kafka.BrokerID]*followerLink{}
		}
		f.links[id] = l
	}
	l.conns++
	c.SetValue(followerKey{}, id)
}

// gone notes that a connection is closed.
func (f *followers) gone(c *wire.Conn, now time.Time) {
	id, ok := c.Value(followerKey{}).(kafka.BrokerID)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.links[id]
	if l.conns--; l.conns == 0 {
		l.lost = now
	}
}

// unheard returns for how long a broker that has fetched here has had no connection.
func (f *followers) unheard(id kafka.BrokerID, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.links[id]
	if l == nil || l.conns > 0 {
		return 0
	}
	return now.Sub(l.lost)
}

// Closed notes that a connection to the listener of ReplicaFetch is closed.
func (s *Services) Closed(c *wire.Conn) { s.followers.gone(c, time.Now()) }

// Unheard returns for how long a broker that has fetched here as a follower has had no
// connection; 0 if it has one, or never had. It may be called from any goroutine.
func (s *Services) Unheard(id kafka.BrokerID) time.Duration {
	return s.followers.unheard(id, time.Now())
}
