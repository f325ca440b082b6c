package peer

import (
	"context"
	"errors"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

// API is the row of the cluster listener's table that receives messages of Raft.
func (r *Raft) API() wire.API {
	return wire.API{
		Name: "Raft", Key: RaftKey, Min: raftVersion, Max: raftVersion, FlexibleFrom: raftVersion + 1,
		Handle: r.handle, Small: true,
	}
}

// handle takes one request. It waits while the quorum has too much to do, which
// holds the connection up and with it the sender.
func (r *Raft) handle(ctx context.Context, req *wire.Request) wire.Response {
	greeting, err := r.receive(ctx, req.Body)
	var refused *RefusedError
	var garbled *wire.PanicError
	switch {
	case err == nil:
		return answered{r.answer(greeting)}
	case errors.As(err, &garbled):
		return wire.Close(err.Error())
	case errors.As(err, &refused):
		answer := r.answer(greeting)
		answer.code, answer.reason = refused.Code, refused.Reason
		return answered{answer}
	}
	return answered{&raftResponse{code: kafka.ErrUnknownServerError, reason: err.Error(), leader: kafka.NoBroker}}
}

// answer says that all is well, and to one that greets who leads: only the leader can
// let it in, and it may look elsewhere for it.
func (r *Raft) answer(greeting bool) *raftResponse {
	answer := &raftResponse{leader: kafka.NoBroker}
	q, _ := r.attached()
	if !greeting || q == nil {
		return answer
	}
	if leader := q.Status().Leader; leader != kafka.NoBroker && leader != r.opt.Self.ID {
		if address, ok := r.Address(leader); ok {
			answer.leader, answer.address = leader, address
		}
	}
	return answer
}

// answered is an answer that is ready.
type answered struct{ response *raftResponse }

// Done implements wire.Response.
func (answered) Done() bool { return true }

// Deadline implements wire.Response.
func (answered) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (a answered) Encode(w *wire.Writer) error {
	w.Append(a.response.AppendTo)
	return nil
}
