package api

// Producers on a broker that is cut off. What it has taken already it can neither acknowledge
// nor refuse, and closes the connection (produce.go). What comes then is refused before it
// is appended, as long as the replicas do not confirm that this broker leads still
// (docs/decisions/016). A client asks for metadata then, and may well ask here, where all
// others are busier: Java asks whoever has the fewest requests to answer, which is a broker
// that refuses everything. So a connection on which records were refused is not told again
// that this broker leads, nor of this broker at all, but of the others, whom it asks next.
// Other connections are: whoever reads is served here with what there is. Where a reader's
// connection was closed (fetchstranded.go), the next question from its host is answered in the
// same way, once: it dials again, and may find the same broker.
//
// Who asks for the coordinator of a group that this broker is in doubt of is told to ask
// others. Who goes on asking here for a while has found no other, and is told of this one:
// it commits nothing, and a member that is not heard of loses its partitions, which it could
// have read on.

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

// refusedKey finds, among the values of a connection, that records were refused on it because
// others may lead by now.
type refusedKey struct{}

// errInDoubt refuses records.
var errInDoubt = &kafka.Error{
	Code: kafka.ErrNotLeaderOrFollower,
	Message: "this broker is cut off from the cluster, and the replicas do not say that it leads still: others may " +
		"lead by now",
}

// maxLetGo bounds how many hosts are remembered.
const maxLetGo = 1000

// letGo are the hosts of readers whose connections were closed, and who have not asked since
// who leads. The zero value is ready to use; it is safe for concurrent use.
type letGo struct {
	mu    sync.Mutex
	hosts map[string]bool
}

func (l *letGo) add(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts == nil || len(l.hosts) >= maxLetGo {
		l.hosts = map[string]bool{}
	}
	l.hosts[host] = true
}

// take reports whether a host is there, and forgets it.
func (l *letGo) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.hosts[host]
	delete(l.hosts, host)
	return was
}

// inDoubt reports whether others may lead, for all that this broker knows, what it believes
// to lead itself: it is out of touch with the active controller, and the replicas do not
// confirm it in time.
func (s *Services) inDoubt(p *partition.Partition, now time.Time) bool {
	return s.OutOfTouch != nil && s.OutOfTouch() && p.InDoubt(now)
}

const (
	// seekPatience is for how long who seeks a coordinator is told to ask others: all
	// clients ask again in less than a second.
	seekPatience = 2 * time.Second
	// seekPause is after how long who asks has not gone on asking, but begins anew.
	seekPause = 5 * time.Second
)

// seekKey finds, among the values of a connection, the seek of who asks there.
type seekKey struct{}

// seek is that a client asks for coordinators, again and again, and was told to ask others.
type seek struct{ began, last time.Time }

// findsNoOther notes that who asks on a connection for a coordinator is to be told to ask
// others, and reports whether it has done so in vain.
func (s *Services) findsNoOther(c *wire.Conn) bool {
	now := s.Now()
	k, _ := c.Value(seekKey{}).(seek)
	if now.Sub(k.last) > seekPause {
		k.began = now
	}
	k.last = now
	c.SetValue(seekKey{}, k)
	return now.Sub(k.began) >= seekPatience
}

// sendElsewhere has an answer to a client whose records were refused, or who was let go, name
// neither this broker as a leader where that is in doubt, nor, if there is such a partition,
// this broker.
func (s *Services) sendElsewhere(w *wire.Request, resp *kmsg.MetadataResponse) {
	if len(resp.Brokers) < 2 || s.OutOfTouch == nil || !s.OutOfTouch() {
		return
	}
	if w.Conn.Value(refusedKey{}) == nil && (len(resp.Topics) == 0 || !s.letGo.take(clientHost(w.Conn))) {
		return
	}
	self, now, doubted := int32(s.NodeID), s.Now(), false
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			if rp.Leader != self {
				continue
			}
			if p := s.Partitions.GetByID(t.TopicID, rp.Partition); p != nil && s.inDoubt(p, now) {
				rp.Leader, rp.ErrorCode = int32(kafka.NoBroker), int16(kafka.ErrLeaderNotAvailable)
				doubted = true
			}
		}
	}
	if doubted {
		resp.Brokers = slices.DeleteFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == self })
	}
}
