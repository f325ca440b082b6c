package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/session"
)

func want(t *testing.T, got []string, records ...string) {
	t.Helper()
	slices.Sort(got)
	if diff := cmp.Diff(records, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records: %s", diff)
	}
}

// wantCode checks the code of a refusal.
func wantCode(t *testing.T, err error, code kafka.Code, words string) {
	t.Helper()
	if got := refusal.CodeOf(err); got != code || err != nil && !strings.Contains(refusal.MessageOf(err), words) {
		t.Errorf("%v: %v, want %v with %q", got, err, code, words)
	}
}

// TestGoesOnFromThePositionThenFromTheCommit: while a session lives it goes on
// where it was; when it has left, the commit is what counts.
func TestGoesOnFromThePositionThenFromTheCommit(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 2)
		w.produce("t", 0, record.CodecNone, "a", "b")
		w.produce("t", 1, record.CodecNone, "c")
		got, b := w.consume(session.Consume{})
		want(t, got, "0:0=a", "0:1=b", "1:0=c")
		if b.Member != session.Shared || b.Generation != 1 {
			t.Errorf("%+v", b)
		}
		got, _ = w.consume(session.Consume{})
		want(t, got)
		w.produce("t", 0, record.CodecNone, "d")
		got, b = w.consume(session.Consume{})
		want(t, got, "0:2=d")
		if diff := cmp.Diff([]session.Next{{Partition: 0, Offset: 3}}, b.Next); diff != "" {
			t.Error(diff)
		}
		err := w.sessions.Commit(t.Context(), session.Commit{Group: "g", Topic: "t", Offsets: []session.Next{{0, 1}}})
		wantCode(t, err, kafka.ErrNone, "")
		pass(40 * time.Second)
		if n := w.sessions.Len(); n != 0 {
			t.Fatalf("%d sessions after their timeout", n)
		}
		got, b = w.consume(session.Consume{})
		want(t, got, "0:1=b", "0:2=d", "1:0=c")
		if b.Generation != 3 { // The empty group was one.
			t.Errorf("generation %d", b.Generation)
		}
	})
}

// TestUsedSessionsStay: a session that is used now and then does not leave, and
// neither does one whose caller waits.
func TestUsedSessionsStay(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a")
		w.consume(session.Consume{})
		for range 10 {
			pass(20 * time.Second)
			got, b := w.consume(session.Consume{})
			want(t, got)
			if b.Generation != 1 {
				t.Fatalf("generation %d", b.Generation)
			}
		}
		begun := time.Now()
		got, b := w.consume(session.Consume{Wait: 2 * time.Minute})
		want(t, got)
		if waited := time.Since(begun); waited != 2*time.Minute || b.Generation != 1 {
			t.Errorf("waited %v, generation %d", waited, b.Generation)
		}
	})
}

// TestLongPoll: a caller that waits has the record as soon as it is there.
func TestLongPoll(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 3)
		begun := time.Now()
		go func() {
			pass(7 * time.Second)
			w.produce("t", 2, record.CodecNone, "a")
		}()
		got, _ := w.consume(session.Consume{Wait: time.Minute})
		want(t, got, "2:0=a")
		if waited := time.Since(begun); waited != 7*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.sessions.Consume(ctx, session.Consume{Group: "g", Topic: "t", MaxBytes: 1, Wait: time.Minute}, &page{})
		if err == nil || time.Since(begun) != 8*time.Second {
			t.Errorf("a caller that gave up: %v after %v", err, time.Since(begun))
		}
	})
}

// TestMaxBytes: a batch larger than max bytes is handed out in parts, and a
// record larger than it whole.
func TestMaxBytes(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		for _, codec := range []record.Codec{record.CodecNone, record.CodecZstd} {
			w.produce("t", 0, codec, strings.Repeat("x", 50), strings.Repeat("y", 50), strings.Repeat("z", 5000), "a", "b")
		}
		var all []string
		calls := 0
		for ; len(all) < 10; calls++ {
			got, b := w.consume(session.Consume{MaxBytes: 100})
			if len(got) == 0 || len(got) > 2 {
				t.Fatalf("%d records", len(got))
			}
			for _, r := range got {
				all = append(all, r[:strings.Index(r, "=")])
			}
			if int(b.Next[0].Offset) != len(all) {
				t.Fatalf("next %v after %d", b.Next, len(all))
			}
		}
		for i, r := range all {
			if r != fmt.Sprintf("0:%d", i) {
				t.Fatalf("record %d is %s", i, r)
			}
		}
		if calls != 8 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestCallersOfOneSessionShare: callers at the same time get disjoint records,
// and all of them together.
func TestCallersOfOneSessionShare(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 3)
		const callers, records = 8, 300
		var mu sync.Mutex
		seen := map[string]int{}
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				for {
					mu.Lock()
					finished := len(seen) == records
					mu.Unlock()
					if finished {
						return
					}
					var p page
					_, err := w.sessions.Consume(t.Context(), session.Consume{
						Group: "g", Topic: "t", MaxBytes: 64, Wait: 5 * time.Second,
					}, &p)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, r := range p.records {
						seen[r]++
					}
					mu.Unlock()
				}
			})
		}
		for i := range records {
			w.produce("t", int32(i%3), record.CodecNone, fmt.Sprint("value ", i))
			if i%10 == 0 {
				pass(time.Millisecond)
			}
		}
		done.Wait()
		for r, n := range seen {
			if n != 1 {
				t.Errorf("%s was handed out %d times", r, n)
			}
		}
	})
}

// TestMembersDivideThePartitions, and when one goes its partitions go to the
// others from the last commit.
func TestMembersDivideThePartitions(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 4)
		for p := range int32(4) {
			w.produce("t", p, record.CodecNone, "a", "b")
		}
		got, b := w.consume(session.Consume{Member: "one", MaxBytes: 1})
		if len(got) != 1 {
			t.Fatal(got)
		}
		first := got[0]
		pass(time.Second)
		_, other := w.consume(session.Consume{Member: session.Fresh, MaxBytes: 1})
		if other.Member == "" || other.Member == session.Fresh || other.Member == "one" || other.Generation <= b.Generation {
			t.Fatalf("%+v", other)
		}
		pass(3 * time.Second) // Cooperative members take two rebalances.
		owner := map[string]string{}
		counts := map[string]int{}
		for range 10 {
			for _, m := range []string{"one", other.Member} {
				got, _ := w.consume(session.Consume{Member: m})
				for _, r := range got {
					if o := owner[r[:1]]; o != "" && o != m {
						t.Errorf("partition %s is read by %s and %s", r[:1], o, m)
					}
					owner[r[:1]] = m
					counts[r]++
				}
			}
		}
		mine := 0
		for _, m := range owner {
			if m == "one" {
				mine++
			}
		}
		if len(owner) != 4 || mine != 2 {
			t.Errorf("owners %v", owner)
		}
		for p := range 4 {
			for o, v := range []string{"a", "b"} {
				r := fmt.Sprintf("%d:%d=%s", p, o, v)
				if n := counts[r]; n != 1 && r != first && other.Records == 0 {
					t.Errorf("%s was handed out %d times", r, n)
				}
			}
		}
		// One goes away without a commit: what it read is read again.
		for range 40 {
			pass(time.Second)
			w.consume(session.Consume{Member: "one"})
		}
		if n := w.sessions.Len(); n != 1 {
			t.Fatalf("%d sessions", n)
		}
	})
}

// TestSharesWithAKafkaMember: whoever leads, and whatever strategy the other has.
func TestSharesWithAKafkaMember(t *testing.T) {
	for _, strategy := range []string{"range", "roundrobin", "sticky", "cooperative-sticky"} {
		t.Run(strategy, func(t *testing.T) {
			run(t, 0, func(t *testing.T, w *world) {
				w.createTopic("t", 1, 4)
				for p := range int32(4) {
					w.produce("t", p, record.CodecNone, "a")
				}
				got, _ := w.consume(session.Consume{})
				if len(got) != 4 {
					t.Fatalf("alone: %v", got)
				}
				p := &peer{w: w, strategies: []string{strategy}, generation: -1}
				p.join(nil) // The session leads.
				for p.heartbeat() == kafka.ErrRebalanceInProgress {
					p.join(nil)
				}
				for range 3 {
					pass(2 * time.Second)
					if p.heartbeat() == kafka.ErrRebalanceInProgress {
						p.join(nil)
					}
				}
				if len(p.owned) != 2 {
					t.Fatalf("the Kafka member owns %v", p.owned)
				}
				for n := range int32(4) {
					w.produce("t", n, record.CodecNone, "b")
				}
				got, _ = w.consume(session.Consume{Wait: time.Second})
				more, _ := w.consume(session.Consume{Wait: time.Second})
				for _, r := range append(got, more...) {
					if slices.Contains(p.owned, int32(r[0]-'0')) {
						t.Errorf("got %s, which is the Kafka member's", r)
					}
				}
				err := w.sessions.Commit(t.Context(), session.Commit{
					Group: "g", Topic: "t", Offsets: []session.Next{{p.owned[0], 1}},
				})
				wantCode(t, err, kafka.ErrIllegalGeneration, "goes to another member")
				_, err = w.sessions.Seek(t.Context(), session.Seek{Group: "g", Topic: "t", Partition: p.owned[0]})
				wantCode(t, err, kafka.ErrNonEmptyGroup, "reads by the Kafka protocol")
				err = w.sessions.Commit(t.Context(), session.Commit{
					Group: "g", Topic: "t", Member: "stranger", Offsets: []session.Next{{0, 1}},
				})
				wantCode(t, err, kafka.ErrNonEmptyGroup, `"stranger" is none of them`)
				p.leave()
				pass(2 * time.Second)
				got, _ = w.consume(session.Consume{Wait: time.Second})
				if len(got) < 2 {
					t.Errorf("after the Kafka member left: %v", got)
				}
			})
		})
	}
}

// TestStrangeGroups: a group whose members session cannot be one of.
func TestStrangeGroups(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		p := &peer{w: w, strategies: []string{"magic"}, generation: -1}
		p.join(func(*kmsg.JoinGroupResponse) []kmsg.SyncGroupRequestGroupAssignment { return nil })
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t", MaxBytes: 1}, &page{})
		wantCode(t, err, kafka.ErrInconsistentGroupProtocol, "assignment strategies")
		synctest.Wait()
		if n := w.sessions.Len(); n != 0 {
			t.Errorf("%d sessions left", n)
		}
	})
}

// TestRestart: the callers of a broker that was restarted notice nothing but that
// what was not committed comes again, and nobody waits for the sessions lost.
func TestRestart(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 2)
		w.produce("t", 0, record.CodecNone, "a")
		w.produce("t", 1, record.CodecNone, "b")
		for range 4 {
			w.consume(session.Consume{Member: "one", Wait: time.Second})
			w.consume(session.Consume{Member: "two", Wait: time.Second})
		}
		before, b := w.consume(session.Consume{Member: "one"})
		want(t, before)
		w.restart()
		begun := time.Now()
		one, again := w.consume(session.Consume{Member: "one"})
		two, _ := w.consume(session.Consume{Member: "two"})
		want(t, append(one, two...), "0:0=a", "1:0=b")
		if again.Generation != b.Generation || again.Member != "one" || time.Since(begun) > time.Second {
			t.Errorf("%+v after %v, before it was generation %d", again, time.Since(begun), b.Generation)
		}
		w.restart()
		// A commit by a member whose session is lost makes it a new one.
		number := int32(one[0][0] - '0')
		err := w.sessions.Commit(t.Context(), session.Commit{
			Group: "g", Topic: "t", Member: "one", Offsets: []session.Next{{number, 1}},
		})
		wantCode(t, err, kafka.ErrNone, "")
		one, _ = w.consume(session.Consume{Member: "one"})
		want(t, one)
	})
}

// TestSeek moves groups with and without members.
func TestSeek(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 2)
		w.produce("t", 0, record.CodecNone, "a", "b", "c")
		pass(time.Hour)
		hour := time.Now()
		w.produce("t", 0, record.CodecNone, "d")
		seek := func(to session.Place, wanted ...session.Next) {
			t.Helper()
			got, err := w.sessions.Seek(t.Context(), session.Seek{Group: "g", Topic: "t", Partition: 0, To: to})
			wantCode(t, err, kafka.ErrNone, "")
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Error(diff)
			}
		}
		seek(session.Place{Offset: 2}, session.Next{Partition: 0, Offset: 2}) // No members.
		got, _ := w.consume(session.Consume{})
		want(t, got, "0:2=c", "0:3=d")
		seek(session.Place{Kind: session.AtEarliest}, session.Next{Partition: 0, Offset: 0})
		got, _ = w.consume(session.Consume{})
		want(t, got, "0:0=a", "0:1=b", "0:2=c", "0:3=d")
		seek(session.Place{Kind: session.AtTimestamp, TimestampMs: hour.UnixMilli()}, session.Next{Partition: 0, Offset: 3})
		got, _ = w.consume(session.Consume{})
		want(t, got, "0:3=d")
		seek(session.Place{Offset: 1}, session.Next{Partition: 0, Offset: 1})
		seek(session.Place{Kind: session.AtLatest}, session.Next{Partition: 0, Offset: 4})
		got, _ = w.consume(session.Consume{})
		want(t, got)
		// Somebody who waits gets what a seek brings back.
		done := make(chan []string, 1)
		go func() {
			got, _ := w.consume(session.Consume{Wait: time.Minute})
			done <- got
		}()
		pass(time.Second)
		seek(session.Place{Offset: 3}, session.Next{Partition: 0, Offset: 3})
		want(t, <-done, "0:3=d")
		_, err := w.sessions.Seek(t.Context(), session.Seek{Group: "g", Topic: "t", Partition: 0, To: session.Place{Offset: 5}})
		wantCode(t, err, kafka.ErrOffsetOutOfRange, "no offset 5")
		_, err = w.sessions.Seek(t.Context(), session.Seek{Group: "g", Topic: "t", Partition: 2})
		wantCode(t, err, kafka.ErrUnknownTopicOrPartition, "no partition 2")
		all, err := w.sessions.Seek(t.Context(), session.Seek{
			Group: "g", Topic: "t", Partition: -1, To: session.Place{Kind: session.AtEarliest},
		})
		if len(all) != 2 || err != nil {
			t.Errorf("seek of all partitions: %v, %v", all, err)
		}
		// The seek is committed.
		w.restart()
		got, _ = w.consume(session.Consume{MaxBytes: 1})
		want(t, got, "0:0=a")
	})
}

// TestCoordinatorLost: a session whose coordinator is gone is not asked again and
// again for records that it may not hand out, and goes on when it is back.
func TestCoordinatorLost(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		got, _ := w.consume(session.Consume{MaxBytes: 1})
		want(t, got, "0:0=a")
		w.setDown(true)
		began := time.Now()
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t", MaxBytes: 1}, &page{})
		wantCode(t, err, kafka.ErrCoordinatorLoadInProgress, "loading")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("refused after %v", took)
		}
		w.setDown(false)
		got, _ = w.consume(session.Consume{})
		want(t, got, "0:1=b")
	})
}

// TestAutoCommit commits at the next call what the one before was given.
func TestAutoCommit(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b", "c")
		w.consume(session.Consume{Commit: true, MaxBytes: 1})
		w.consume(session.Consume{Commit: true, MaxBytes: 1})
		w.restart()
		got, _ := w.consume(session.Consume{})
		want(t, got, "0:1=b", "0:2=c")
	})
}

// TestRewindAndReturn: what a caller has lost it gets again.
func TestRewindAndReturn(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		_, b := w.consume(session.Consume{MaxBytes: 1})
		b.Return()
		got, first := w.consume(session.Consume{MaxBytes: 1})
		want(t, got, "0:0=a")
		got, _ = w.consume(session.Consume{MaxBytes: 1})
		want(t, got, "0:1=b")
		first.Return() // Somebody has read on.
		got, _ = w.consume(session.Consume{})
		want(t, got)
		got, _ = w.consume(session.Consume{Rewind: true})
		want(t, got, "0:0=a", "0:1=b")
	})
}

// TestReset: where reading begins without a commit, and when the log has moved
// on.
func TestReset(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b", "c")
		late := session.Terms{Reset: session.Latest}
		got, _ := w.consume(session.Consume{Group: "late", Terms: late})
		want(t, got)
		w.produce("t", 0, record.CodecNone, "d")
		got, _ = w.consume(session.Consume{Group: "late", Terms: late})
		want(t, got, "0:3=d")
		w.consume(session.Consume{MaxBytes: 1})
		if err := w.applier.Table.Get("t", 0).Log().DeleteRecords(2); err != nil {
			t.Fatal(err)
		}
		got, _ = w.consume(session.Consume{})
		want(t, got, "0:2=c", "0:3=d")
	})
}

// TestCommitWithoutMembers is taken from anybody, if the offsets are in the log.
func TestCommitWithoutMembers(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		commit := func(offsets ...session.Next) error {
			return w.sessions.Commit(t.Context(), session.Commit{Group: "g", Topic: "t", Offsets: offsets})
		}
		wantCode(t, commit(), kafka.ErrInvalidRequest, "offsets are needed")
		wantCode(t, commit(session.Next{Partition: 0, Offset: 3}), kafka.ErrInvalidRequest, "not in the log")
		wantCode(t, commit(session.Next{Partition: 0, Offset: -1}), kafka.ErrInvalidRequest, "not in the log")
		wantCode(t, commit(session.Next{Partition: 1}), kafka.ErrUnknownTopicOrPartition, "no partition 1")
		wantCode(t, commit(session.Next{Partition: 0, Offset: 1}), kafka.ErrNone, "")
		got, _ := w.consume(session.Consume{})
		want(t, got, "0:1=b")
	})
}

// TestLimit: there are no more sessions than there may be, until one leaves.
func TestLimit(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.consume(session.Consume{Group: "a"})
		w.consume(session.Consume{Group: "b"})
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "c", Topic: "t"}, &page{})
		wantCode(t, err, kafka.ErrThrottlingQuotaExceeded, "2 consumer sessions")
		pass(31 * time.Second)
		w.consume(session.Consume{Group: "c"})
	})
}

// TestStats: what became of sessions is counted.
func TestStats(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 2)
		check := func(want session.Stats) {
			t.Helper()
			want.Limit = 2
			if diff := cmp.Diff(want, w.sessions.Stats()); diff != "" {
				t.Error(diff)
			}
		}
		w.consume(session.Consume{Member: "a"})
		pass(time.Second) // A call may return before its member has joined.
		check(session.Stats{Open: 1, Begun: 1, FirstJoins: 1})
		w.consume(session.Consume{Group: "other", Member: "a"})
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t", Member: "b"}, &page{})
		wantCode(t, err, kafka.ErrThrottlingQuotaExceeded, "")
		pass(time.Second)
		check(session.Stats{Open: 2, Begun: 2, Refused: 1, FirstJoins: 2})
		pass(40 * time.Second)
		check(session.Stats{Begun: 2, Refused: 1, FirstJoins: 2, Expired: 2})
		// Another member makes the group rebalance.
		w.consume(session.Consume{Member: "a"})
		w.consume(session.Consume{Member: "b"})
		pass(3 * time.Second)
		st := w.sessions.Stats()
		if st.Begun != 4 || st.FirstJoins != 4 || st.Rejoins == 0 || st.Fenced+st.Failed != 0 {
			t.Errorf("after a rebalance: %+v", st)
		}
		// Somebody else goes on under the name of a.
		req := kmsg.NewPtrJoinGroupRequest()
		instance := "http:t:a"
		req.Version, req.Group, req.InstanceID, req.ProtocolType = 9, "g", &instance, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 10_000
		m := kmsg.NewConsumerMemberMetadata()
		m.Topics = []string{"t"}
		for _, name := range []string{"cooperative-sticky", "range"} {
			req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: m.AppendTo(nil)})
		}
		if code := kafka.Code(w.ask(req).(*kmsg.JoinGroupResponse).ErrorCode); code != kafka.ErrNone {
			t.Fatal(code)
		}
		pass(3 * time.Second)
		if st := w.sessions.Stats(); st.Fenced != 1 || st.Failed != 0 {
			t.Errorf("after a was fenced: %+v", st)
		}
	})
}

// TestBadRequests are refused before there is a session.
func TestBadRequests(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		for _, c := range []struct {
			r     session.Consume
			code  kafka.Code
			words string
		}{
			{session.Consume{Topic: "t"}, kafka.ErrInvalidRequest, "a group is needed"},
			{session.Consume{Group: "g", Topic: "t", Member: "a:b"}, kafka.ErrInvalidRequest, "letters, digits"},
			{session.Consume{Group: "g", Topic: "u"}, kafka.ErrUnknownTopicOrPartition, "there is no topic u"},
			{
				session.Consume{Group: "g", Topic: "t", Terms: session.Terms{Timeout: time.Second}},
				kafka.ErrInvalidSessionTimeout, "group.min.session.timeout.ms",
			},
		} {
			_, err := w.sessions.Consume(t.Context(), c.r, &page{})
			wantCode(t, err, c.code, c.words)
		}
	})
}

// TestCoordinatorAway: callers are told so when their time is up, and are served
// again as soon as it is back.
func TestCoordinatorAway(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a")
		w.setDown(true)
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t", MaxBytes: 1}, &page{})
		wantCode(t, err, kafka.ErrCoordinatorLoadInProgress, "loading")
		go func() {
			pass(2 * time.Second)
			w.setDown(false)
		}()
		begun := time.Now()
		got, _ := w.consume(session.Consume{Wait: time.Minute})
		want(t, got, "0:0=a")
		if waited := time.Since(begun); waited > 3*time.Second {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestCommitsThatHang: a coordinator that does not answer is not waited for.
func TestCommitsThatHang(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		w.setMute(true)
		begun := time.Now()
		commit := session.Commit{Group: "g", Topic: "t", Offsets: []session.Next{{0, 1}}}
		wantCode(t, w.sessions.Commit(t.Context(), commit), kafka.ErrRequestTimedOut, "did not answer in time")
		_, err := w.sessions.Seek(t.Context(), session.Seek{Group: "other", Topic: "t", Partition: 0})
		wantCode(t, err, kafka.ErrRequestTimedOut, "did not answer in time")
		w.setMute(false)
		w.consume(session.Consume{Commit: true, MaxBytes: 1})
		w.setMute(true)
		wantCode(t, w.sessions.Commit(t.Context(), commit), kafka.ErrRequestTimedOut, "did not answer in time")
		_, err = w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t", MaxBytes: 1, Commit: true}, &page{})
		wantCode(t, err, kafka.ErrRequestTimedOut, "did not answer in time")
		if waited := time.Since(begun); waited != 40*time.Second {
			t.Errorf("waited %v", waited)
		}
		w.setMute(false)
	})
}

// TestMorePartitions: a session that leads its group sees that a topic has grown.
func TestMorePartitions(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.consume(session.Consume{})
		w.apply(&metadata.PartitionsAdded{ID: kafka.TopicID{1}, First: 1, Partitions: []metadata.Partition{{
			Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1, LeaderEpoch: 1,
		}}})
		w.produce("t", 1, record.CodecNone, "new")
		got, _ := w.consume(session.Consume{Wait: time.Minute})
		want(t, got, "1:0=new")
	})
}

// TestTopicMadeAgain: a session of a topic that was deleted is not one of its
// namesake.
func TestTopicMadeAgain(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		w.consume(session.Consume{})
		w.apply(&metadata.TopicDeleted{ID: kafka.TopicID{1}})
		_, err := w.sessions.Consume(t.Context(), session.Consume{Group: "g", Topic: "t"}, &page{})
		wantCode(t, err, kafka.ErrUnknownTopicOrPartition, "create it first")
		w.createTopic("t", 2, 1)
		w.produce("t", 0, record.CodecNone, "c")
		got, _ := w.consume(session.Consume{Wait: 20 * time.Second})
		want(t, got, "0:0=c")
	})
}

// TestRead reads without a group.
func TestRead(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b", "c")
		read := func(r session.Read, next kafka.Offset, records ...string) {
			t.Helper()
			r.Topic, r.MaxBytes = "t", 1<<20
			var p page
			n, count, err := w.sessions.Read(t.Context(), r, &p)
			if err != nil || n.Offset != next || count != len(records) {
				t.Errorf("next %v, %d records, %v", n, count, err)
			}
			want(t, p.records, records...)
		}
		read(session.Read{At: session.Place{Offset: 1}}, 3, "0:1=b", "0:2=c")
		read(session.Read{At: session.Place{Kind: session.AtLatest}}, 3)
		go func() {
			pass(time.Second)
			w.produce("t", 0, record.CodecNone, "d")
		}()
		read(session.Read{At: session.Place{Kind: session.AtLatest}, Wait: time.Minute}, 4, "0:3=d")
		begun := time.Now()
		read(session.Read{At: session.Place{Offset: 4}, Wait: time.Minute}, 4)
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("waited %v", waited)
		}
		_, _, err := w.sessions.Read(t.Context(), session.Read{Topic: "t", Partition: 9}, &page{})
		wantCode(t, err, kafka.ErrUnknownTopicOrPartition, "no partition 9")
		_, _, err = w.sessions.Read(t.Context(), session.Read{Topic: "t", At: session.Place{Offset: 9}}, &page{})
		wantCode(t, err, kafka.ErrOffsetOutOfRange, "no offset 9")
	})
}

// TestNeverPastItsGeneration: a session that was put out of its group without
// knowing it hands out nothing more of what it owned.
func TestNeverPastItsGeneration(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 2)
		w.produce("t", 0, record.CodecNone, "a")
		got, _ := w.consume(session.Consume{})
		want(t, got, "0:0=a")
		// Its next heartbeat is a second away.
		instance := "http:t:shared"
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group = 3, "g"
		leave.Members = []kmsg.LeaveGroupRequestMember{{InstanceID: &instance}}
		if resp := w.ask(leave).(*kmsg.LeaveGroupResponse); resp.Members[0].ErrorCode != 0 {
			t.Fatalf("leave: %v", kafka.Code(resp.Members[0].ErrorCode))
		}
		p := &peer{w: w, strategies: []string{"range"}, generation: -1}
		p.join(func(j *kmsg.JoinGroupResponse) []kmsg.SyncGroupRequestGroupAssignment {
			a := kmsg.NewConsumerMemberAssignment()
			a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{0, 1}}}
			return []kmsg.SyncGroupRequestGroupAssignment{{MemberID: j.MemberID, MemberAssignment: a.AppendTo(nil)}}
		})
		w.produce("t", 0, record.CodecNone, "b")
		begun := time.Now()
		got, b := w.consume(session.Consume{}) // It has to join again, for which the peer must.
		want(t, got)
		if waited := time.Since(begun); waited != 5*time.Second {
			t.Errorf("waited %v: %+v", waited, b)
		}
	})
}

// TestRestartInAHandOver: a broker that stops while partitions are on their way
// from one member to another, and owned by none, does not leave them there.
func TestRestartInAHandOver(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 4)
		w.consume(session.Consume{Member: "one"})
		w.consume(session.Consume{Member: "two"})
		w.keepUpTo(2) // In which two members own two partitions together.
		w.restart()
		for p := range int32(4) {
			w.produce("t", p, record.CodecNone, "a")
		}
		var all []string
		for range 10 {
			for _, m := range []string{"one", "two"} {
				got, _ := w.consume(session.Consume{Member: m, Wait: time.Second})
				all = append(all, got...)
			}
		}
		want(t, all, "0:0=a", "1:0=a", "2:0=a", "3:0=a")
	})
}
