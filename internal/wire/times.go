package wire

import (
	"iter"
	"time"

	"github.com/strandline/strandline/internal/tally"
)

// maxTimedKey is the largest key of a request whose times are kept; the
// protocol's are all below.
const maxTimedKey = 127

// Times are how long the requests of one API took.
type Times struct {
	// Queued is from the arrival of a request's last byte to the start of its
	// handler: it grows when the requests before it on the connection keep the
	// read loop busy.
	Queued tally.Durations
	// Total is from the arrival to the encoded answer, what it waited for
	// included: the sync, replicas, new records.
	Total tally.Durations
}

// noteQueued counts a request that is handled next.
func (s *Server) noteQueued(req *Request) {
	if t := s.timesOf(req.Key); t != nil {
		t.Queued.Add(time.Since(req.Received))
	}
}

// noteAnswered counts a request that was answered.
func (s *Server) noteAnswered(req *Request) {
	if t := s.timesOf(req.Key); t != nil {
		t.Total.Add(time.Since(req.Received))
	}
}

func (s *Server) timesOf(key int16) *Times {
	if key < 0 || key > maxTimedKey {
		return nil
	}
	return &s.times[key]
}

// Times returns the times of every API that was asked for, by its key.
func (s *Server) Times() iter.Seq2[int16, *Times] {
	return func(yield func(int16, *Times) bool) {
		for key := range s.times {
			t := &s.times[key]
			if t.Queued.Used() && !yield(int16(key), t) {
				return
			}
		}
	}
}
