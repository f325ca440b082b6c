// Package reach finds clients that were told an address they cannot reach: they
// fetch metadata, again and again, and never come to do anything else. It is
// the question that users of every Kafka broker ask most, and only the broker
// sees both halves of the answer.
//
// A client is a remote host and what it calls itself. It is reported when it
// asked for metadata over a span of at least Patience and no connection of it
// has sent anything but metadata and version requests. A client that asks once
// and leaves (a listing, a health check) is never reported.
//
// It is pure: time is an argument, and Tick returns what there is to say. It
// assumes that one goroutine at a time calls it. Invariant: it keeps at most
// MaxClients clients; when it is full, newcomers are not watched, so strangers
// cannot make it grow.
package reach

import (
	"cmp"
	"slices"
	"time"
)

// Client is who asks.
type Client struct {
	Host string // The remote address without its port.
	ID   string // client.id.
}

// Finding is a client that did not come.
type Finding struct {
	Client     Client
	Advertised string    // The address it was told.
	Since      time.Time // When it asked first.
	Asked      int       // How often.
}

// The limits of a Watch.
const (
	// Patience is how long a client may take to come to the address it was told.
	Patience = 10 * time.Second
	// MaxClients bounds what is kept.
	MaxClients = 1000
	// forget is after what silence a client is forgotten.
	forget = 5 * time.Minute
)

type state struct {
	first, last time.Time
	advertised  string
	asked       int
	came        bool // It has done something useful.
	reported    bool
}

// Watch holds the clients that asked for metadata.
type Watch struct{ clients map[Client]*state }

// New returns a Watch of nobody.
func New() *Watch { return &Watch{clients: map[Client]*state{}} }

// Asked records a request for metadata, which told the client the address.
func (w *Watch) Asked(now time.Time, c Client, advertised string) {
	if s := w.client(now, c); s != nil {
		s.last, s.advertised = now, advertised
		s.asked++
	}
}

// Came records that a client did something else.
func (w *Watch) Came(now time.Time, c Client) {
	if s := w.client(now, c); s != nil {
		s.came, s.last = true, now
	}
}

// client returns what is known of c, or nil if there is no room to know it.
func (w *Watch) client(now time.Time, c Client) *state {
	s := w.clients[c]
	if s == nil && len(w.clients) < MaxClients {
		s = &state{first: now}
		w.clients[c] = s
	}
	return s
}

// Tick forgets who is silent and returns the clients that are to be reported
// now, each once, in the order of their addresses.
func (w *Watch) Tick(now time.Time) []Finding {
	var found []Finding
	for c, s := range w.clients {
		switch {
		case now.Sub(s.last) > forget:
			delete(w.clients, c)
		case s.missing() && !s.reported:
			s.reported = true
			found = append(found, s.finding(c))
		}
	}
	sortFindings(found)
	return found
}

// Missing returns all clients that have not come so far.
func (w *Watch) Missing() []Finding {
	var found []Finding
	for c, s := range w.clients {
		if s.missing() {
			found = append(found, s.finding(c))
		}
	}
	sortFindings(found)
	return found
}

func (s *state) missing() bool {
	return !s.came && s.asked > 1 && s.last.Sub(s.first) >= Patience
}

func (s *state) finding(c Client) Finding {
	return Finding{Client: c, Advertised: s.advertised, Since: s.first, Asked: s.asked}
}

func sortFindings(f []Finding) {
	slices.SortFunc(f, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Client.Host, b.Client.Host), cmp.Compare(a.Client.ID, b.Client.ID))
	})
}
