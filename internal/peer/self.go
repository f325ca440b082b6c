package peer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// CheckSelf asks who is at the address that other nodes reach this one at. Where another
// process with this node's id answers, what others send to this node arrives there: its
// error says so. That nobody answers is none, since a node need not reach itself, and that
// another node does is a line in the log.
func (r *Raft) CheckSelf(ctx context.Context) error {
	self, o := r.opt.Self, r.opt.Conn
	o.Logger = slog.New(slog.DiscardHandler) // It is no other broker that can't be reached.
	conn := Dial(func() (string, bool) { return self.Address, self.Address != "" }, o)
	defer conn.Close() //nolint:errcheck // It was only asked.
	_, clusterID := r.attached()
	e := &envelope{clusterID: clusterID, from: self, to: quorum.Member{ID: self.ID}, greeting: true}
	body, err := e.appendTo(nil)
	if err != nil {
		return err
	}
	before := r.owned()
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	resp, err := conn.Do(ctx, &raftRequest{body: body})
	if err != nil {
		return nil
	}
	answer, ok := resp.(*raftResponse)
	if ok && answer.code == kafka.ErrInvalidVoterKey && r.firstTime(self.ID, answer.reason) {
		r.log.Warn("another broker answers where this one says that it is, so the others may not find it: "+
			"is its own entry in --voters where it listens?", "address", self.Address, "answer", answer.reason)
	}
	if !ok || answer.code != kafka.ErrNone || r.owned() != before {
		return nil
	}
	return fmt.Errorf("node %d is at %s to the others, and another process answers there, with a copy of this data directory: "+
		"stop one of the two, and start it with an empty directory and a --node-id of its own", self.ID, self.Address)
}

// owned returns how many greetings of this node have arrived here.
func (r *Raft) owned() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own
}
