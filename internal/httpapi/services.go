package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/topics"
)

// Services are the rooms that handlers call.
type Services struct {
	NodeID kafka.BrokerID
	Topics *topics.Directory
	Keys   *keyring.Rings
	Groups *groups.Coordinator
	// Transactions is the transaction coordinator.
	Transactions *transactions.Coordinator
	// Sessions are the members of groups that read over HTTP.
	Sessions *session.Sessions
	Control  topics.Admin
	Broker   func() *config.Broker // The broker's settings as they are now.
	Now      func() time.Time
	Logger   *slog.Logger
	// Forward sends requests on to the broker that can answer them; nil where there
	// is no other.
	Forward Forward
}

// Forward sends requests to other brokers of the cluster; *relay.Relay is one. It is
// the one seam through which any node takes any request: a handler finds out who
// leads the partition or coordinates the group, and what is not here goes there as
// it came. It must not change r.
//
// An error with a method Unsent that returns true says that nothing of the request
// has left, any other that it may have been carried out.
type Forward interface {
	Send(
		ctx context.Context, to kafka.BrokerID, r *http.Request, body []byte, own ...string,
	) (*http.Response, error)
}

// insideKey marks the contexts of requests that another broker sends.
type insideKey struct{}

// Inside returns the context of connections on which only brokers send requests.
// Such a request goes no further, so that two brokers with other views of the cluster
// do not play ball with it. Nothing that a client can send has that effect.
func Inside(ctx context.Context) context.Context { return context.WithValue(ctx, insideKey{}, true) }

// inside reports whether another broker sends the request.
func inside(r *http.Request) bool { return r.Context().Value(insideKey{}) != nil }

// travels reports whether a request may go on to another broker.
func (s *server) travels(r *http.Request) bool { return s.Forward != nil && !inside(r) }
