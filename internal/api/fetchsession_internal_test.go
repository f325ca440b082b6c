package api

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// followed is a request that follows so many partitions.
func followed(session, epoch int32, partitions int) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = 12, session, epoch
	t := kmsg.NewFetchRequestTopic()
	t.Topic = "t"
	for i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = int32(i)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// TestSessionsAreBoundedByPartitions is internal because it takes very many:
// readers that follow them get no session when there are enough, and room comes
// back with sessions that end.
func TestSessionsAreBoundedByPartitions(t *testing.T) {
	c := newSessionCache(time.Now, func() int { return 1000 })
	open := func(partitions int) int32 {
		r := &fetchReply{version: 12}
		if _, code := c.begin(r, followed(0, 0, partitions)); code != kafka.ErrNone {
			t.Fatalf("a full fetch: %s", code)
		}
		if r.session != nil {
			c.end(r.session)
		}
		return r.sessionID
	}
	const many = maxSessionPartitions / 4
	first := open(many)
	for range 2 {
		if open(many) == 0 {
			t.Error("no session though there is room")
		}
	}
	last := open(many)
	if last == 0 || open(1) != 0 {
		t.Error("the room does not end where it should")
	}
	r := &fetchReply{version: 12}
	if _, code := c.begin(r, followed(first, finalEpoch, 0)); code != kafka.ErrNone || c.partitions != 3*many {
		t.Errorf("the end of a session: %s, %d partitions are left", code, c.partitions)
	}
	if open(many) == 0 {
		t.Error("no room after a session ended")
	}
	// One that grows beyond the room has to start over.
	if _, code := c.begin(&fetchReply{version: 12}, followed(last, 1, many+1)); code != kafka.ErrFetchSessionIDNotFound {
		t.Errorf("a session that grows beyond the room: %s", code)
	}
	if c.partitions != 3*many || len(c.sessions) != 3 {
		t.Errorf("%d partitions of %d sessions are left", c.partitions, len(c.sessions))
	}
}
