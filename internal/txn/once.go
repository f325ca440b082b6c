package txn

import (
	"strings"
	"time"
)

// OncePrefix begins the transactional ids that the broker makes for clients that give
// none. Nobody comes back under them, so they are forgotten onceExpiration after their
// last transaction, and as early as others if those go earlier. There are at most
// Settings.MaxOnce of them: when another comes, the one that was heard of least recently
// is forgotten if its transaction is over, and else the new one is refused.
const (
	OncePrefix     = "strandline-once-"
	onceExpiration = time.Hour
)

// maxOnceLooks bounds the search for one whose transaction is over.
const maxOnceLooks = 16

func isOnce(id string) bool { return strings.HasPrefix(id, OncePrefix) }

// expirationOf returns how long an id is kept after its last transaction.
func (s *Settings) expirationOf(id string) time.Duration {
	if isOnce(id) {
		return min(s.Expiration, onceExpiration)
	}
	return s.Expiration
}

// noteOnce notes that a transaction of an id that the broker made was heard of.
func (s *Shard) noteOnce(t *transaction) {
	switch {
	case !isOnce(t.id):
	case t.once == nil:
		t.once = s.once.PushBack(t)
	default:
		s.once.MoveToBack(t.once)
	}
}

// roomFor reports whether there may be another transactional id, and returns the one that
// is to be forgotten for it, or nil.
func (s *Shard) roomFor(id string, nowMs int64) (leaves *transaction, ok bool) {
	if !isOnce(id) || s.once.Len() < s.settings.MaxOnce {
		return nil, true
	}
	e := s.once.Front()
	for looks := 0; e != nil && looks < maxOnceLooks; looks++ {
		if t := e.Value.(*transaction); t.isOver(nowMs) {
			return t, true
		}
		e = e.Next()
	}
	return nil, false
}

// isOver reports whether nothing can come of a transaction any more but retries: it has
// ended, or nothing was made part of it for longer than it may last.
func (t *transaction) isOver(nowMs int64) bool {
	switch {
	case len(t.parked) > 0 || t.state == Ongoing || t.state.ending():
		return false
	case t.state == Empty:
		return nowMs-t.lastUpdateMs >= int64(t.timeoutMs)
	}
	return true
}
