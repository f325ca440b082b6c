// Package strange makes requests that a stranger might send: well formed, of every kind
// and version that a listener offers, with values that are likely, possible or absurd. What
// brokers answer is learned, so that later requests name what is there.
//
//	World    what is known of a cluster, shared by all visitors
//	Visitor  sends requests to one address until it is told to stop
//
// It names topics, groups and transactional ids of its own alone: what else a cluster
// holds is not to be hurt. Deliberately absent: any judgement but that an answer comes, in
// its turn, and decodes.
package strange

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// most is how many things of a kind are remembered.
const most = 32

// World is what visitors know of a cluster.
type World struct {
	mu        sync.Mutex
	topicIDs  [][16]byte
	members   []string
	producers []producer
	cluster   string
	answered  map[string]int
	closed    int
	// silent are kinds of requests that had no answer.
	silent map[string]int
	// slowest is the longest that a kind of request took.
	slowest map[string]time.Duration
}

// producer is an id that a broker gave.
type producer struct {
	id    int64
	epoch int16
}

// NewWorld returns one in which nothing is known.
func NewWorld() *World {
	return &World{answered: map[string]int{}, silent: map[string]int{}, slowest: map[string]time.Duration{}}
}

// Topics are the names of topics that strangers make and use.
func Topics() []string { return []string{"prey-0", "prey-1", "prey-2", "prey-3"} }

// learn takes from an answer what later requests may name.
func (w *World) learn(resp kmsg.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered[kmsg.NameForKey(resp.Key())]++
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		if r.ClusterID != nil {
			w.cluster = *r.ClusterID
		}
		for _, t := range r.Topics {
			if t.Topic != nil && slices.Contains(Topics(), *t.Topic) {
				w.topicIDs = remember(w.topicIDs, t.TopicID)
			}
		}
	case *kmsg.CreateTopicsResponse:
		for _, t := range r.Topics {
			if slices.Contains(Topics(), t.Topic) {
				w.topicIDs = remember(w.topicIDs, t.TopicID)
			}
		}
	case *kmsg.JoinGroupResponse:
		if r.MemberID != "" {
			w.members = remember(w.members, r.MemberID)
		}
	case *kmsg.InitProducerIDResponse:
		if r.ErrorCode == 0 {
			w.producers = remember(w.producers, producer{r.ProducerID, r.ProducerEpoch})
		}
	}
}

// remember adds something to what is known, in the place of the oldest.
func remember[T comparable](known []T, x T) []T {
	if slices.Contains(known, x) {
		return known
	}
	if len(known) == most {
		known = slices.Delete(known, 0, 1)
	}
	return append(known, x)
}

// pick returns something that is known, or what else there is.
func pick[T any](w *World, r *rand.Rand, of func(*World) []T, otherwise T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := of(w)
	if len(known) == 0 {
		return otherwise
	}
	return known[r.IntN(len(known))]
}

// ClusterID returns the id of the cluster, if it was told.
func (w *World) ClusterID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster
}

func (w *World) noteClosed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
}

func (w *World) noteSilent(key int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[kmsg.NameForKey(key)]++
}

// Answered returns how many requests were answered.
func (w *World) Answered() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.answered {
		n += count
	}
	return n
}

func (w *World) noteTime(key int16, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := kmsg.NameForKey(key)
	w.slowest[name] = max(w.slowest[name], took.Round(time.Millisecond))
}

// String tells what was answered, and what was not.
func (w *World) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("answered: %s\nsilent: %s\nslowest: %v\nconnections closed: %d", counts(w.answered), counts(w.silent), w.slowest, w.closed)
}

func counts(of map[string]int) (out string) {
	byCount := func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(of), byCount) {
		out += fmt.Sprintf("%s %d, ", name, of[name])
	}
	return out
}
