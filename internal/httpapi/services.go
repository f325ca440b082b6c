package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator/groups"
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
	// Sessions are the members of groups that read over HTTP.
	Sessions *session.Sessions
	Control  topics.Admin
	Broker   func() *config.Broker // The broker's settings as they are now.
	Now      func() time.Time
	Logger   *slog.Logger
	// Forward passes requests on to the broker that can answer them; nil where
	// there is no other.
	Forward Forward
}

// Forward passes a request on to another broker of the cluster. It is the one
// seam through which any node takes any request: a handler finds out who leads
// the partition or coordinates the group, and what is not here goes there as it
// came.
type Forward interface {
	// Pass sends the request to a broker, with body in the place of what was read
	// of its own, and the broker's answer to w. On an error nothing was written.
	Pass(w http.ResponseWriter, r *http.Request, body []byte, to kafka.BrokerID) error
}

// forwardedField marks a request that a broker has passed on: it goes no further,
// so that two brokers with other views of the cluster do not play ball with it.
const forwardedField = "Strandline-Forwarded"

// pass passes a request on to the broker that leads what the request is about.
// It reports false if that is this broker, and an error if nobody can be asked.
func (s *server) pass(w http.ResponseWriter, r *http.Request, body []byte, leader kafka.BrokerID) (bool, error) {
	switch {
	case leader == s.NodeID:
		return false, nil
	case leader == kafka.NoBroker:
		return false, &kafka.Error{Code: kafka.ErrLeaderNotAvailable, Message: "the partition has no leader: try again"}
	case s.Forward == nil || r.Header.Get(forwardedField) != "":
		return false, &kafka.Error{
			Code: kafka.ErrNotLeaderOrFollower, Message: "another broker leads the partition: try again",
		}
	}
	return true, s.Forward.Pass(w, r, body, leader)
}
