package quorum_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// Whoever asks a node that can't reach others to add one is refused, and the node goes
// on: the library would send to it from then on, after each restart too.
func TestNobodyJoinsALoneNode(t *testing.T) {
	disk := memfs.New()
	for restart := range 2 {
		m := &list{}
		n := start(t, options(disk, m))
		<-n.Ready()
		for _, id := range []kafka.BrokerID{2, 0, 1 << 30, -1, -2, -1 << 31} {
			other := quorum.Member{ID: id, Directory: [16]byte{9}, Address: "127.0.0.1:1"}
			for what, err := range map[string]error{
				"voter": n.AddVoter(t.Context(), other), "learner": n.AddLearner(t.Context(), other),
			} {
				want := quorum.Unreachable
				if id < 0 {
					want = quorum.Nameless
				}
				if member := new(quorum.MemberError); !errors.As(err, &member) || member.Problem != want || member.Error() == "" {
					t.Errorf("%s %d: %v", what, id, err)
				}
			}
			for what, err := range map[string]error{
				"voter":   n.RemoveVoter(t.Context(), id, [16]byte{}),
				"learner": n.RemoveLearner(t.Context(), id, [16]byte{}),
			} {
				if member := new(quorum.MemberError); !errors.As(err, &member) || member.Problem != quorum.NotMember {
					t.Errorf("remove %s %d: %v", what, id, err)
				}
			}
		}
		mustAdd(t, n, "x")
		if got := len(m.entries()); got != restart+1 {
			t.Errorf("%d entries after %d restarts", got, restart)
		}
		n.stop(t)
	}
}

// Nobody joins whom the others could not keep: what all have agreed on ends all when it is
// applied, and again at each start.
func TestNobodyJoinsWithALongAddress(t *testing.T) {
	disk := memfs.New()
	opt := options(disk, &list{})
	opt.Transport = silent{}
	n := start(t, opt)
	<-n.Ready()
	long := quorum.Member{ID: 2, Directory: [16]byte{9}, Address: strings.Repeat("a", 1025)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, other := range []quorum.Member{long, {ID: -2, Address: "127.0.0.1:1"}} {
		for what, err := range map[string]error{
			"voter": n.AddVoter(ctx, other), "learner": n.AddLearner(ctx, other), "greeting": n.Greeted(ctx, other, false),
		} {
			if member := new(quorum.MemberError); !errors.As(err, &member) || member.Error() == "" {
				t.Errorf("%s %d: %v", what, other.ID, err)
			}
		}
	}
	mustAdd(t, n, "x")
	long.Address = long.Address[1:]
	if err := n.AddLearner(ctx, long); err != nil {
		t.Error(err)
	}
	mustAdd(t, n, "y")
	n.stop(t)
}

// Who was never heard of is given no vote, and is no learner afterwards either: the others
// would send to it for ever.
func TestNobodyJoinsWhoIsNotThere(t *testing.T) {
	opt := options(memfs.New(), &list{})
	opt.Transport = silent{}
	n := start(t, opt)
	<-n.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := n.AddVoter(ctx, quorum.Member{ID: 7, Directory: [16]byte{9}, Address: "127.0.0.1:1"})
	if member := new(quorum.MemberError); !errors.As(err, &member) || member.Problem != quorum.NotMember {
		t.Error(err)
	}
	if learners := n.Status().Learners; len(learners) > 0 {
		t.Errorf("learners %v", learners)
	}
	n.stop(t)
}

// A node with a learner that is started without a way to others goes on alone.
func TestAloneWithALearner(t *testing.T) {
	disk := memfs.New()
	opt := options(disk, &list{})
	opt.Transport = silent{}
	n := start(t, opt)
	<-n.Ready()
	if err := n.AddVoter(t.Context(), quorum.Member{ID: 2}); err == nil {
		t.Error("a node that is no member and has no address was added")
	}
	if err := n.AddLearner(t.Context(), quorum.Member{ID: 2, Address: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	m := &list{}
	n = start(t, options(disk, m))
	<-n.Ready()
	mustAdd(t, n, "x")
	if err := n.RemoveLearner(t.Context(), 2, [16]byte{}); err != nil {
		t.Error(err)
	}
	mustAdd(t, n, "y")
	if got := m.entries(); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("entries %v", got)
	}
	n.stop(t)
}
