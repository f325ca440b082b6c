package api_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// reader is a consumer's side of a fetch session.
type reader struct {
	*client
	version int16
	session int32
	epoch   int32
}

// begin opens a session with a full request.
func (w *world) begin(version int16, topics ...*metadata.Topic) (*reader, *kmsg.FetchResponse) {
	w.t.Helper()
	r := &reader{client: w.connect(), version: version}
	req := r.next()
	for _, t := range topics {
		req.Topics = append(req.Topics, fetchOf(version, t, make([]kafka.Offset, len(t.Partitions))...).Topics...)
	}
	resp := r.fetched(req)
	r.session, r.epoch = resp.SessionID, 1
	return r, resp
}

// next makes the session's next request, which names nothing.
func (r *reader) next() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes = r.version, 0, 1<<20
	req.SessionID, req.SessionEpoch = r.session, r.epoch
	return req
}

// poll sends the next request after a change and shows the answer.
func (r *reader) poll(change func(*kmsg.FetchRequest)) string {
	r.t.Helper()
	req := r.next()
	if change != nil {
		change(req)
	}
	resp := r.fetched(req)
	if resp.ErrorCode == 0 {
		r.epoch++
		if resp.SessionID != r.session {
			r.t.Errorf("the answer names session %d, want %d", resp.SessionID, r.session)
		}
	}
	return show(r.t, resp)
}

// at moves a partition to an offset.
func at(t *metadata.Topic, partition int32, offset int64) func(*kmsg.FetchRequest) {
	return func(req *kmsg.FetchRequest) {
		rt := fetchOf(req.Version, t, kafka.Offset(offset)).Topics[0]
		rt.Partitions[0].Partition = partition
		req.Topics = append(req.Topics, rt)
	}
}

// forget takes partitions out.
func forget(t *metadata.Topic, partitions ...int32) func(*kmsg.FetchRequest) {
	return func(req *kmsg.FetchRequest) {
		req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{
			Topic: t.Name, TopicID: t.ID, Partitions: partitions,
		})
	}
}

// TestFetchSession: a full answer first, then only what is new.
func TestFetchSession(t *testing.T) {
	w := startWorld(t)
	a, b := w.createTopic("a", 2), w.createTopic("b", 1)
	w.fill("a", 0, "a0")
	r, first := w.begin(12, a, b)
	expect(t, "first", show(t, first), "a-0 a0, a-1, b-0")
	if r.session == 0 {
		t.Fatal("no session")
	}
	expect(t, "moved on", r.poll(at(a, 0, 1)), "")
	expect(t, "nothing new", r.poll(nil), "")
	w.fill("b", 0, "b0")
	expect(t, "new in b", r.poll(nil), "b-0 b0")
	expect(t, "again, as it was not moved on", r.poll(nil), "b-0 b0")
	expect(t, "moved on", r.poll(at(b, 0, 1)), "")

	expect(t, "forgotten", r.poll(forget(a, 0, 1)), "")
	w.fill("a", 1, "a1")
	expect(t, "new in what is forgotten", r.poll(nil), "")
	expect(t, "back", r.poll(at(a, 1, 0)), "a-1 a1")
	expect(t, "forgotten what it never had", r.poll(forget(b, 7)), "a-1 a1")
	expect(t, "forgotten and named at once", r.poll(func(req *kmsg.FetchRequest) {
		at(a, 1, 0)(req)
		forget(a, 1)(req)
	}), "")

	w.must(w.partition("b", 0).Log().DeleteRecords(1))
	expect(t, "a new log start", r.poll(nil), "b-0")
	expect(t, "told once", r.poll(nil), "")
}

// TestFetchSessionErrors: an error is told each time, and that it is over once.
func TestFetchSessionErrors(t *testing.T) {
	w := startWorld(t)
	a := w.createTopic("a", 1)
	r, first := w.begin(12, a)
	expect(t, "first", show(t, first), "a-0")
	expect(t, "out of range", r.poll(at(a, 0, 5)), "a-0 OFFSET_OUT_OF_RANGE")
	expect(t, "still", r.poll(nil), "a-0 OFFSET_OUT_OF_RANGE")
	expect(t, "over", r.poll(at(a, 0, 0)), "a-0")
	expect(t, "told", r.poll(nil), "")
	none := &metadata.Topic{Name: "none"}
	expect(t, "no topic", r.poll(at(none, 0, 0)), "none-0 UNKNOWN_TOPIC_OR_PARTITION")
	w.fill("a", 0, "v")
	expect(t, "errors do not hide records", r.poll(nil), "a-0 v, none-0 UNKNOWN_TOPIC_OR_PARTITION")
	w.createTopic("none", 1)
	expect(t, "the topic appears", r.poll(at(a, 0, 1)), "none-0")
}

// TestFetchSessionEpochs: requests out of step are refused, and what a refused
// client does next works.
func TestFetchSessionEpochs(t *testing.T) {
	w := startWorld(t)
	a := w.createTopic("a", 1)
	w.fill("a", 0, "v")
	r, _ := w.begin(12, a)
	for _, epoch := range []int32{2, 7} {
		expect(t, fmt.Sprint("epoch ", epoch), r.poll(func(req *kmsg.FetchRequest) {
			req.SessionEpoch = epoch
		}), "INVALID_FETCH_SESSION_EPOCH")
	}
	expect(t, "in step", r.poll(nil), "a-0 v")
	expect(t, "the last once more", r.poll(func(req *kmsg.FetchRequest) {
		req.SessionEpoch--
	}), "INVALID_FETCH_SESSION_EPOCH")
	expect(t, "no such session", r.poll(func(req *kmsg.FetchRequest) {
		req.SessionID++
	}), "FETCH_SESSION_ID_NOT_FOUND")
	expect(t, "by id in a session by name", r.poll(func(req *kmsg.FetchRequest) {
		req.Version = 13
	}), "FETCH_SESSION_TOPIC_ID_ERROR")

	// A full request ends the session and begins another.
	req := fetchOf(12, a, 0)
	req.SessionID, req.SessionEpoch = r.session, 0
	resp := r.fetched(req)
	expect(t, "begun anew", show(t, resp), "a-0 v")
	if resp.SessionID == 0 || resp.SessionID == r.session {
		t.Errorf("session %d after %d", resp.SessionID, r.session)
	}
	expect(t, "the old one", r.poll(nil), "FETCH_SESSION_ID_NOT_FOUND")
	r.session, r.epoch = resp.SessionID, 1
	expect(t, "the new one", r.poll(nil), "a-0 v")

	// The final epoch ends it for good.
	req.SessionID, req.SessionEpoch = r.session, -1
	resp = r.fetched(req)
	expect(t, "the last", show(t, resp), "a-0 v")
	if resp.SessionID != 0 {
		t.Errorf("session %d after the end", resp.SessionID)
	}
	expect(t, "after the end", r.poll(nil), "FETCH_SESSION_ID_NOT_FOUND")
}

// TestFetchSessionByID: topics are named by id from version 13 on.
func TestFetchSessionByID(t *testing.T) {
	w := startWorld(t)
	a := w.createTopic("a", 1)
	r, resp := w.begin(13, a)
	if id := kafka.TopicID(resp.Topics[0].TopicID); id != a.ID {
		t.Errorf("topic id %s, want %s", id, a.ID)
	}
	w.fill("a", 0, "v")
	expect(t, "new", r.poll(nil), "-0 v")
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{"a"}
	_, err := w.plane.DeleteTopics(t.Context(), req)
	w.must(err)
	expect(t, "deleted", r.poll(nil), "-0 UNKNOWN_TOPIC_ID")
	w.createTopic("a", 1)
	expect(t, "another of that name", r.poll(nil), "-0 UNKNOWN_TOPIC_ID")
	expect(t, "by name in a session by id", r.poll(func(req *kmsg.FetchRequest) {
		req.Version = 12
	}), "FETCH_SESSION_TOPIC_ID_ERROR")
}

// TestFullSessionCache: newcomers do without a session until an idle one gives
// way.
func TestFullSessionCache(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.createTopic("a", 1)
		w.fill("a", 0, "v")
		first, _ := w.begin(12, a)
		second, _ := w.begin(12, a)
		third, resp := w.begin(12, a)
		expect(t, "without a session", show(t, resp), "a-0 v")
		if first.session == 0 || second.session == 0 || third.session != 0 {
			t.Fatalf("sessions %d, %d, %d", first.session, second.session, third.session)
		}
		<-time.After(time.Minute + time.Second)
		expect(t, "the first is in use", first.poll(nil), "a-0 v")
		<-time.After(time.Minute)
		third, _ = w.begin(12, a)
		if third.session == 0 {
			t.Fatal("no idle session gave way")
		}
		expect(t, "the second gave way", second.poll(nil), "FETCH_SESSION_ID_NOT_FOUND")
		expect(t, "the first is there", first.poll(nil), "a-0 v")
		expect(t, "the third works", third.poll(nil), "a-0 v")
	}, "max.incremental.fetch.session.cache.slots=2")
}

// TestFetchSessionRotates: what had its turn goes to the end of the line.
func TestFetchSessionRotates(t *testing.T) {
	w := startWorld(t)
	a := w.createTopic("a", 3)
	for i := range int32(3) {
		w.fill("a", i, "v", "w")
	}
	small := func(req *kmsg.FetchRequest) { req.MaxBytes = 1 }
	r := &reader{client: w.connect(), version: 12}
	req := fetchOf(12, a, 0, 0, 0)
	req.SessionEpoch, req.MaxBytes = 0, 1
	resp := r.fetched(req)
	r.session, r.epoch = resp.SessionID, 1
	expect(t, "first", show(t, resp), "a-0 v, a-1, a-2")
	for round, want := range []string{"a-1 v", "a-2 v", "a-0 v", "a-1 v"} {
		expect(t, fmt.Sprint("round ", round), r.poll(small), want)
	}
}

// TestFetchSessionNames: names of a session outlive the frame they came in.
func TestFetchSessionNames(t *testing.T) {
	w := startWorld(t)
	var topics []*metadata.Topic
	for i := range 5 {
		topics = append(topics, w.createTopic(fmt.Sprintf("topic-number-%d", i), 1))
	}
	for _, version := range []int16{7, 11, 12} {
		r, _ := w.begin(version, topics...)
		for range 50 { // Write over the buffer that the names came in.
			req := describeConfig(strings.Repeat("x", 400), "y")
			req.Version = 1
			r.ask(req)
		}
		for i := range topics {
			w.fill(topics[i].Name, 0, "v")
		}
		got := r.poll(nil)
		for i := range topics {
			if !strings.Contains(got, fmt.Sprintf("topic-number-%d-0 v", i)) {
				t.Errorf("version %d: no topic %d in %q", version, i, got)
			}
		}
	}
}

// TestFetchSessionInUse: two requests of one session at a time are a client's
// mistake, and a broken connection frees its session.
func TestFetchSessionInUse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.createTopic("a", 1)
		r, _ := w.begin(12, a)
		waiting := r.next()
		waiting.MinBytes, waiting.MaxWaitMillis = 1, 60_000
		r.send(waiting)
		synctest.Wait()
		other := &reader{client: w.connect(), version: 12, session: r.session, epoch: r.epoch + 1}
		expect(t, "in use", other.poll(nil), "INVALID_FETCH_SESSION_EPOCH")
		w.must(r.conn.Close())
		synctest.Wait()
		w.fill("a", 0, "v")
		expect(t, "free", other.poll(nil), "a-0 v")
	})
}
