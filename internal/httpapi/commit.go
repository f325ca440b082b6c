package httpapi

// POST /v1/topics/{topic}/commit and POST /v1/topics/{topic}/seek: the offset of
// the next record to read, as told by who has read, and as wished by somebody.

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/session"
)

// CommitRequest commits offsets by partition.
type CommitRequest struct {
	Group   string           `json:"group"`
	Member  string           `json:"member"`
	Offsets map[string]int64 `json:"offsets"`
}

// SeekRequest moves a group in a partition, or in all, to one of the places.
type SeekRequest struct {
	Group       string `json:"group"`
	Partition   *int32 `json:"partition"`
	Offset      *int64 `json:"offset"`
	Timestamp   *int64 `json:"timestamp"`
	TimestampMs *int64 `json:"timestamp_ms"`
	Earliest    bool   `json:"earliest"`
	Latest      bool   `json:"latest"`
}

func (s *server) commit(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.topic(r.PathValue("topic")); err != nil {
		return err
	}
	var req CommitRequest
	body, err := s.decode(w, r, &req)
	if err != nil {
		return err
	}
	offsets, err := offsetsOf(req.Offsets)
	if err != nil {
		return err
	}
	return s.toCoordinator(w, r, body, req.Group, func() error {
		err := s.Sessions.Commit(r.Context(), session.Commit{
			Group: req.Group, Topic: r.PathValue("topic"), Member: req.Member, Offsets: offsets,
		})
		if err == nil {
			answerOffsets(w, offsets)
		}
		return err
	})
}

// offsetsOf reads offsets by partition, in order.
func offsetsOf(by map[string]int64) ([]session.Next, error) {
	all := make([]session.Next, 0, len(by))
	for name, offset := range by {
		number, err := strconv.ParseInt(name, 10, 32)
		if err != nil || number < 0 || strconv.FormatInt(number, 10) != name {
			return nil, badRequest("offsets: %q is no partition: they are numbered from 0", clip(name))
		}
		all = append(all, session.Next{Partition: int32(number), Offset: kafka.Offset(offset)})
	}
	slices.SortFunc(all, func(a, b session.Next) int { return cmp.Compare(a.Partition, b.Partition) })
	return all, nil
}

func answerOffsets(w http.ResponseWriter, offsets []session.Next) {
	answerJSON(w, http.StatusOK, append(appendOffsets([]byte(`{"offsets":`), offsets), "}\n"...))
}

func (s *server) seek(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.topic(r.PathValue("topic")); err != nil {
		return err
	}
	var req SeekRequest
	body, err := s.decode(w, r, &req)
	if err != nil {
		return err
	}
	to, err := req.place()
	if err != nil {
		return err
	}
	number := int32(-1)
	if req.Partition != nil {
		if number = *req.Partition; number < 0 {
			return badRequest("partition is %d: they are numbered from 0, and without one all are moved", number)
		}
	}
	return s.toCoordinator(w, r, body, req.Group, func() error {
		offsets, err := s.Sessions.Seek(r.Context(), session.Seek{
			Group: req.Group, Topic: r.PathValue("topic"), Partition: number, To: to,
		})
		if err == nil {
			answerOffsets(w, offsets)
		}
		return err
	})
}

// place returns where to seek to.
func (q *SeekRequest) place() (session.Place, error) {
	var places []session.Place
	if q.Offset != nil {
		places = append(places, session.Place{Offset: kafka.Offset(*q.Offset)})
	}
	if q.Timestamp != nil {
		places = append(places, session.Place{Kind: session.AtTimestamp, TimestampMs: millis(*q.Timestamp)})
	}
	if q.TimestampMs != nil {
		places = append(places, session.Place{Kind: session.AtTimestamp, TimestampMs: *q.TimestampMs})
	}
	if q.Earliest {
		places = append(places, session.Place{Kind: session.AtEarliest})
	}
	if q.Latest {
		places = append(places, session.Place{Kind: session.AtLatest})
	}
	if len(places) != 1 {
		return session.Place{}, badRequest("give one of offset, timestamp, timestamp_ms, earliest and latest")
	}
	if at := places[0]; at.Kind == session.AtTimestamp && (at.TimestampMs < 0 || at.TimestampMs > math.MaxInt64/2) {
		return session.Place{}, badRequest("the timestamp is out of range")
	}
	return places[0], nil
}

// toCoordinator answers a request about a group on the broker that coordinates it. To
// commit the same offsets again does no harm.
func (s *server) toCoordinator(
	w http.ResponseWriter, r *http.Request, body []byte, group string, here func() error,
) error {
	if group == "" {
		return badRequest("group is missing")
	}
	return s.travel(w, r, journey{
		find: func(ctx context.Context) (leadership, error) { return s.coordinatorOf(ctx, group) },
		here: here, body: body, patience: failoverPatience,
	})
}

// coordinatorOf finds the broker that coordinates a group.
func (s *server) coordinatorOf(ctx context.Context, group string) (leadership, error) {
	if _, err := s.Groups.BrokerOf(ctx, group); err != nil {
		return leadership{}, err
	}
	return s.leadershipOf(group)
}

// leadershipOf is coordinatorOf where the topic of offsets is there.
func (s *server) leadershipOf(group string) (leadership, error) {
	i, leader, err := s.Groups.PartitionOf(group)
	switch {
	case err != nil:
		return leadership{}, err
	case leader == kafka.NoBroker:
		return leadership{}, &kafka.Error{
			Code: kafka.ErrCoordinatorNotAvailable, Message: "the group's partition has no leader: try again",
		}
	}
	return s.leadershipIn(metadata.OffsetsTopic, i, leader), nil
}

// leadershipIn adds to the leader of a partition since when it leads.
func (s *server) leadershipIn(topic string, partition int32, leader kafka.BrokerID) leadership {
	p := s.Control.Image().Topic(topic).Partition(partition)
	if p == nil {
		return leadership{leader: leader}
	}
	return leadership{leader, p.LeaderEpoch}
}
