package api

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// fetchedPartition is what a reader wants of one partition and what it was last
// told about it.
type fetchedPartition struct {
	topic       string
	id          kafka.TopicID
	partition   int32
	fetchOffset kafka.Offset
	maxBytes    int32
	leaderEpoch kafka.LeaderEpoch
	// Of a follower: the epoch of its last record, and the high watermark that it
	// knows, if it wants to be told of a higher one at once.
	lastEpoch     kafka.LeaderEpoch
	highWatermark kafka.Offset
	logStart      kafka.Offset // Where its log begins.
	answers       kafka.Round  // What it was asked, see partition.Confirm.
	// entry is that of a follower's session.
	entry *fetchEntry

	told              bool
	toldRound         kafka.Round // The last that a follower was told of.
	toldHighWatermark kafka.Offset
	toldLogStart      kafka.Offset
	toldErrorLast     bool
}

func (p *fetchedPartition) sameTopic(o *fetchedPartition) bool {
	return p.id == o.id && p.topic == o.topic
}

// changed says whether an incremental answer must name the partition although
// it has no records for it.
func (p *fetchedPartition) changed(highWatermark, logStart kafka.Offset, code kafka.Code) bool {
	return code != kafka.ErrNone || !p.told || p.toldErrorLast ||
		p.toldHighWatermark != highWatermark || p.toldLogStart != logStart
}

func (p *fetchedPartition) sent(highWatermark, logStart kafka.Offset, code kafka.Code) {
	p.told, p.toldHighWatermark, p.toldLogStart = true, highWatermark, logStart
	p.toldErrorLast = code != kafka.ErrNone
}

// partitionKey finds a partition in a session, by name or by id as the session
// was made.
type partitionKey struct {
	topic     string
	id        kafka.TopicID
	partition int32
}

// fetchSession is the server's side of an incremental fetch (KIP-227): the
// partitions a reader follows, so that it need not name them again. It is held
// by one request at a time.
type fetchSession struct {
	id    int32
	byID  bool
	inUse sync.Mutex // Held from begin to end of a request.
	epoch int32
	order []*fetchedPartition // Those answered with records move to the end.
	index map[partitionKey]*fetchedPartition

	held heldSession // Of followers.

	// Guarded by the cache's lock.
	lastUsed time.Time
	counted  int // Of the cache's partitions.
	gone     bool
}

// sessionCache bounds the sessions of a broker. When it is full, the one unused
// for longest gives way if it is idle for evictAfter; else the newcomer goes
// without a session, which costs it only larger requests.
type sessionCache struct {
	now        func() time.Time
	max        func() int // max.incremental.fetch.session.cache.slots.
	evictAfter time.Duration
	newID      func() int32

	mu       sync.Mutex
	sessions map[int32]*fetchSession
	// partitions are those of all sessions. Invariant: the sum of their counted,
	// at most maxSessionPartitions.
	partitions int
}

// maxSessionPartitions bounds what sessions remember, some 200 bytes each.
const maxSessionPartitions = 256 << 10

func newSessionCache(now func() time.Time, maxSessions func() int) *sessionCache {
	return &sessionCache{
		now: now, max: maxSessions, evictAfter: 2 * time.Minute,
		newID:    func() int32 { return rand.Int32N(1<<31-2) + 1 },
		sessions: map[int32]*fetchSession{},
	}
}

// finalEpoch asks for no session, or for the end of one.
const finalEpoch = -1

// begin finds or makes the request's session and returns what to read. A
// session it sets in r stays locked until r's release.
func (c *sessionCache) begin(r *fetchReply, req *kmsg.FetchRequest) ([]*fetchedPartition, kafka.Code) {
	if req.Version < 7 || req.SessionEpoch == finalEpoch || req.SessionEpoch == 0 {
		r.full = true
		if req.Version >= 7 {
			c.remove(req.SessionID)
		}
		wanted := wantedOf(req)
		if req.Version >= 7 && req.SessionEpoch == 0 {
			c.create(r, wanted)
		}
		return wanted, kafka.ErrNone
	}
	c.mu.Lock()
	s := c.sessions[req.SessionID]
	if s != nil {
		s.lastUsed = c.now()
	}
	c.mu.Unlock()
	if s == nil {
		return nil, kafka.ErrFetchSessionIDNotFound
	}
	if s.byID != (req.Version >= 13) {
		return nil, kafka.ErrFetchSessionTopicIDError // The client was up- or downgraded.
	}
	if !s.inUse.TryLock() {
		return nil, kafka.ErrInvalidFetchSessionEpoch // Another request is under way in it.
	}
	if s.epoch != req.SessionEpoch {
		s.inUse.Unlock()
		return nil, kafka.ErrInvalidFetchSessionEpoch
	}
	s.epoch = nextSessionEpoch(s.epoch)
	s.update(req)
	if !c.count(s) {
		// There is no room for what it follows now: the reader starts over, and
		// gets a session if there is room for that.
		c.remove(s.id)
		s.inUse.Unlock()
		return nil, kafka.ErrFetchSessionIDNotFound
	}
	r.session, r.sessionID = s, s.id
	return s.order, kafka.ErrNone
}

func nextSessionEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

// create makes a session of what is wanted, if there is room.
func (c *sessionCache) create(r *fetchReply, wanted []*fetchedPartition) {
	s := &fetchSession{
		byID: r.version >= 13, epoch: 1,
		order: slices.Clone(wanted), index: make(map[partitionKey]*fetchedPartition, len(wanted)),
	}
	for _, p := range wanted {
		s.index[partitionKey{p.topic, p.id, p.partition}] = p
	}
	s.inUse.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.lastUsed = c.now()
	for len(c.sessions) >= c.max() || c.partitions+len(wanted) > maxSessionPartitions {
		if !c.evictLocked() {
			return
		}
	}
	for s.id == 0 || c.sessions[s.id] != nil {
		s.id = c.newID()
	}
	c.sessions[s.id] = s
	s.counted = len(wanted)
	c.partitions += s.counted
	r.session, r.sessionID = s, s.id
}

// evictLocked drops the session unused for longest if it is idle.
func (c *sessionCache) evictLocked() bool {
	var oldest *fetchSession
	for _, s := range c.sessions {
		if oldest == nil || s.lastUsed.Before(oldest.lastUsed) {
			oldest = s
		}
	}
	if oldest == nil || c.now().Sub(oldest.lastUsed) < c.evictAfter {
		return false
	}
	c.removeLocked(oldest.id)
	return true
}

// count notes how many partitions a session follows now, and reports whether
// there is room for them.
func (c *sessionCache) count(s *fetchSession) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.id] != s {
		return true // It was evicted meanwhile and lives for this request only.
	}
	c.partitions += len(s.order) - s.counted
	s.counted = len(s.order)
	return c.partitions <= maxSessionPartitions
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(id)
}

func (c *sessionCache) removeLocked(id int32) {
	if s := c.sessions[id]; s != nil {
		c.partitions -= s.counted
		delete(c.sessions, id)
		s.gone = true
		if s.inUse.TryLock() { // Else whoever uses it lets go at its end.
			s.letGo()
			s.inUse.Unlock()
		}
	}
}

// wantedOf lists what a full request names.
func wantedOf(req *kmsg.FetchRequest) []*fetchedPartition {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	block := make([]fetchedPartition, n)
	wanted := make([]*fetchedPartition, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &block[len(wanted)]
			p.topic, p.id, p.partition = t.Topic, t.TopicID, t.Partitions[j].Partition
			p.take(&t.Partitions[j])
			wanted = append(wanted, p)
		}
	}
	return wanted
}

func (p *fetchedPartition) take(rp *kmsg.FetchRequestTopicPartition) {
	p.fetchOffset, p.maxBytes = kafka.Offset(rp.FetchOffset), rp.PartitionMaxBytes
	p.leaderEpoch, p.lastEpoch = kafka.LeaderEpoch(rp.CurrentLeaderEpoch), kafka.LeaderEpoch(rp.LastFetchedEpoch)
	p.highWatermark, p.logStart = kafka.Offset(rp.HighWatermark), kafka.Offset(rp.LogStartOffset)
	p.answers = kafka.Round{}
	if rp.UnknownTags.Len() > 0 {
		rp.UnknownTags.Each(func(tag uint32, value []byte) {
			if tag == kafka.RoundTag {
				p.answers, _ = kafka.ParseRound(value)
			}
		})
	}
}

// update applies an incremental request's changes.
func (s *fetchSession) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			key := partitionKey{t.Topic, t.TopicID, t.Partitions[j].Partition}
			p := s.index[key]
			if p == nil {
				p = &fetchedPartition{topic: t.Topic, id: t.TopicID, partition: key.partition}
				s.index[key] = p
				s.order = append(s.order, p)
			}
			p.take(&t.Partitions[j])
			s.held.name(s, p)
		}
	}
	gone := map[*fetchedPartition]bool{}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, partition := range t.Partitions {
			key := partitionKey{t.Topic, t.TopicID, partition}
			if p := s.index[key]; p != nil {
				gone[p] = true
				delete(s.index, key)
				p.letGo()
			}
		}
	}
	if len(gone) > 0 {
		s.order = slices.DeleteFunc(s.order, func(p *fetchedPartition) bool { return gone[p] })
	}
}

// answered moves the partitions that had records behind the others, so that
// all get their turn when an answer is full. The entries of r keep their order.
func (s *fetchSession) answered(r *fetchReply) {
	with := 0
	for _, e := range r.entries {
		if e.size > 0 {
			with++
		}
	}
	if with == 0 || with == len(r.entries) || len(s.order) != len(r.entries) {
		return
	}
	order := make([]*fetchedPartition, 0, len(r.entries))
	for pass := range 2 {
		for _, e := range r.entries {
			if (e.size > 0) == (pass == 1) {
				order = append(order, e.want)
			}
		}
	}
	s.order = order
}

// end lets the next request in.
func (c *sessionCache) end(s *fetchSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.held.waiting.Store(nil)
	if s.gone {
		s.letGo()
	}
	s.inUse.Unlock()
}
