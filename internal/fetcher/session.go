package fetcher

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// session is what a leader knows of a loop: the partitions that it follows and where
// they are (KIP-227). Without one every request names all.
type session struct {
	id    int32 // Zero for none.
	epoch int32 // Of the next request.
	last  int32 // The one before, which the leader may forget.
	// refused says that the leader has no room for a session.
	refused bool
	// told counts the entries that the leader knows of.
	told int
	// news are the entries of which the leader is to be told something, or to be told
	// to forget them.
	news map[*entry]bool
	// readersSeen is when entries were looked at for readers.
	readersSeen time.Time
}

// readersInterval is how often partitions are looked at for consumers that wait here.
const readersInterval = 100 * time.Millisecond

// note notes that the leader is to be told of an entry.
func (s *session) note(e *entry) {
	if s.news == nil {
		s.news = map[*entry]bool{}
	}
	s.news[e] = true
}

// forget notes that an entry is followed no more.
func (s *session) forget(e *entry) {
	e.gone = true
	if e.told {
		s.note(e)
	} else {
		delete(s.news, e)
	}
}

// hasNews reports whether there is something to tell now.
func (s *session) hasNews() bool {
	for e := range s.news {
		if e.told || e.isReady() {
			return true
		}
	}
	return false
}

// reset begins the session anew: the leader knows nothing.
func (s *session) reset(entries map[*partition.Partition]*entry) {
	if s.id != 0 {
		s.last = s.id
	}
	s.id, s.epoch, s.told, s.refused = 0, 0, 0, false
	clear(s.news)
	for _, e := range entries {
		e.told, e.answer = false, kafka.Round{}
		s.note(e)
	}
}

// answered takes in what the leader says of the session.
func (s *session) answered(id int32, incremental bool) {
	if incremental {
		return
	}
	s.refused = id == 0
	if id > 0 {
		s.id, s.epoch = id, 1
	}
}

// noteReaders looks for consumers that have come to wait here, or have left: the
// leader is to tell at once when the high watermark moves, or need not.
func (s *session) noteReaders(entries map[*partition.Partition]*entry, now time.Time) {
	if now.Sub(s.readersSeen) < readersInterval {
		return
	}
	s.readersSeen = now
	for _, e := range entries {
		if readers := e.p.HasReaders(); readers != e.readers {
			e.readers = readers
			s.note(e)
		}
	}
}

// request makes the next request; nil if there is nobody to ask for. It also returns
// the entries that it tells something new of.
func (s *session) request(
	entries map[*partition.Partition]*entry, o Settings,
) (*kmsg.FetchRequest, map[*entry]bool) {
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch = s.id, s.epoch // Zero asks for a session.
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(o.WaitMax.Milliseconds()), o.MinBytes, o.MaxBytes
	b := requestBuilder{req: req, session: s, topics: map[kafka.TopicID]int{}, forgotten: map[kafka.TopicID]int{}}
	names := map[*entry]bool{}
	if s.id == 0 {
		req.SessionID = s.last
		if !s.refused {
			req.MaxWaitMillis = 0 // So that there is a session soon, to overtake it in.
		}
		for _, e := range entries {
			if e.isReady() {
				names[e] = true
				b.add(e, o.PartitionMaxBytes)
			}
		}
		clear(s.news)
		return req, names
	}
	added := map[key]bool{}
	for e := range s.news {
		names[e] = true
		if e.isReady() {
			b.add(e, o.PartitionMaxBytes)
			added[e.key()] = true
		}
	}
	for e := range s.news {
		if e.told && !e.isReady() {
			// A leader adds first and forgets then: not what was added under a new epoch.
			b.forget(e, !added[e.key()])
		}
	}
	clear(s.news)
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1
	}
	return req, names
}

// requestBuilder groups partitions by topic.
type requestBuilder struct {
	req               *kmsg.FetchRequest
	session           *session
	topics, forgotten map[kafka.TopicID]int
}

func (b *requestBuilder) add(e *entry, maxBytes int32) {
	id := e.p.ID()
	i, ok := b.topics[id.ID]
	if !ok {
		i = len(b.req.Topics)
		b.topics[id.ID] = i
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = e.p.Topic(), id.ID
		b.req.Topics = append(b.req.Topics, t)
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch = id.Partition, int32(e.epoch)
	rp.FetchOffset, rp.LastFetchedEpoch = int64(e.at.Offset), int32(e.at.LastEpoch)
	rp.LogStartOffset, rp.PartitionMaxBytes = int64(e.at.LogStartOffset), maxBytes
	rp.HighWatermark = math.MaxInt64
	if e.readers {
		rp.HighWatermark = int64(e.at.HighWatermark)
	}
	if e.answer.Number > 0 {
		rp.UnknownTags.Set(kafka.RoundTag, e.answer.AppendTo(nil))
		e.answer = kafka.Round{}
	}
	b.req.Topics[i].Partitions = append(b.req.Topics[i].Partitions, rp)
	if !e.told {
		b.session.told++
	}
	e.told, e.moved = true, false
}

// forget forgets an entry, and has the leader forget it too if it is still to.
func (b *requestBuilder) forget(e *entry, tell bool) {
	e.told = false
	b.session.told--
	if !tell {
		return
	}
	id := e.p.ID()
	i, ok := b.forgotten[id.ID]
	if !ok {
		i = len(b.req.ForgottenTopics)
		b.forgotten[id.ID] = i
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = e.p.Topic(), id.ID
		b.req.ForgottenTopics = append(b.req.ForgottenTopics, t)
	}
	b.req.ForgottenTopics[i].Partitions = append(b.req.ForgottenTopics[i].Partitions, id.Partition)
}
