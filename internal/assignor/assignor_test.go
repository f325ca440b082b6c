package assignor_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/assignor"
	"github.com/strandline/strandline/internal/kafka"
)

// parts reads "a:0,1 b:2".
func parts(s string) []kafka.TopicPartition {
	var all []kafka.TopicPartition
	for _, f := range strings.Fields(s) {
		topic, numbers, _ := strings.Cut(f, ":")
		for n := range strings.SplitSeq(numbers, ",") {
			var p int32
			_, _ = fmt.Sscan(n, &p)
			all = append(all, kafka.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return all
}

func member(id, topics, owned string) assignor.Member {
	return assignor.Member{ID: id, Topics: strings.Fields(topics), Owned: parts(owned), Generation: 1}
}

func TestPlans(t *testing.T) {
	older := member("b", "t", "t:0,1")
	older.Generation = 0
	static := member("a", "t", "")
	static.InstanceID = "z"
	for _, c := range []struct {
		name, strategy string
		members        []assignor.Member
		counts         map[string]int32
		want           map[string]string
	}{
		{
			"range gives the first ones more", assignor.Range,
			[]assignor.Member{member("b", "t u", ""), member("a", "t u", "")},
			map[string]int32{"t": 3, "u": 3},
			map[string]string{"a": "t:0,1 u:0,1", "b": "t:2 u:2"},
		},
		{
			"range minds who subscribes", assignor.Range,
			[]assignor.Member{member("a", "t", ""), member("b", "t u", "")},
			map[string]int32{"t": 2, "u": 2},
			map[string]string{"a": "t:0", "b": "t:1 u:0,1"},
		},
		{
			"static members come first", assignor.Range,
			[]assignor.Member{member("0", "t", ""), static},
			map[string]int32{"t": 3},
			map[string]string{"a": "t:0,1", "0": "t:2"},
		},
		{
			"more members than partitions", assignor.Range,
			[]assignor.Member{member("a", "t", ""), member("b", "t", "")},
			map[string]int32{"t": 1},
			map[string]string{"a": "t:0", "b": ""},
		},
		{
			"roundrobin goes on over topics", assignor.RoundRobin,
			[]assignor.Member{member("a", "t u", ""), member("b", "t u", "")},
			map[string]int32{"t": 3, "u": 3},
			map[string]string{"a": "t:0,2 u:1", "b": "t:1 u:0,2"},
		},
		{
			"roundrobin skips those who do not subscribe", assignor.RoundRobin,
			[]assignor.Member{member("a", "t", ""), member("b", "t u", ""), member("c", "u", "")},
			map[string]int32{"t": 2, "u": 2},
			map[string]string{"a": "t:0", "b": "t:1 u:1", "c": "u:0"},
		},
		{
			"sticky moves one to a new member", assignor.Sticky,
			[]assignor.Member{member("a", "t", "t:0,1,2"), member("b", "t", "t:3,4"), member("c", "t", "")},
			map[string]int32{"t": 5},
			map[string]string{"a": "t:0,1", "b": "t:3,4", "c": "t:2"},
		},
		{
			"sticky passes on through a third", assignor.Sticky,
			[]assignor.Member{member("a", "t", "t:0,1,2"), member("b", "t u", "u:0,1"), member("c", "u", "")},
			map[string]int32{"t": 3, "u": 2},
			map[string]string{"a": "t:0,1", "b": "t:2 u:0", "c": "u:1"},
		},
		{
			"the later claim counts", assignor.Sticky,
			[]assignor.Member{member("a", "t", "t:0"), older},
			map[string]int32{"t": 2},
			map[string]string{"a": "t:0", "b": "t:1"},
		},
		{
			"cooperative withholds what moves", assignor.Cooperative,
			[]assignor.Member{member("a", "t", "t:0,1,2"), member("b", "t", "")},
			map[string]int32{"t": 4},
			map[string]string{"a": "t:0,1", "b": "t:3"},
		},
		{
			"two claims for one partition are none", assignor.Cooperative,
			[]assignor.Member{member("a", "t", "t:0"), member("b", "t", "t:0")},
			map[string]int32{"t": 2},
			map[string]string{"a": "t:0", "b": "t:1"},
		},
		{
			"claims on what is not there", assignor.Cooperative,
			[]assignor.Member{member("a", "t", "t:7 gone:0")},
			map[string]int32{"t": 1},
			map[string]string{"a": "t:0"},
		},
		{
			"nobody wants anything that exists", assignor.RoundRobin,
			[]assignor.Member{member("a", "gone", "")},
			map[string]int32{},
			map[string]string{"a": ""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := assignor.Plan{}
			for id, s := range c.want {
				want[id] = parts(s)
			}
			got := assignor.New(c.strategy, c.members, c.counts)
			for id := range got {
				if len(got[id]) == 0 {
					got[id] = nil
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// world is a random group and its topics.
type world struct {
	members []assignor.Member
	counts  map[string]int32
}

func drawWorld(t *rapid.T, alike bool) world {
	w := world{counts: map[string]int32{}}
	names := []string{"t", "u", "v"}
	for _, topic := range names {
		w.counts[topic] = rapid.Int32Range(0, 12).Draw(t, topic)
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "members") {
		m := assignor.Member{ID: fmt.Sprint("m", i), Topics: names, Generation: rapid.Int32Range(-1, 2).Draw(t, "generation")}
		if rapid.Bool().Draw(t, "static") {
			m.InstanceID = fmt.Sprint("i", 9-i)
		}
		if !alike {
			m.Topics = rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "topics")
		}
		for range rapid.IntRange(0, 6).Draw(t, "claims") {
			m.Owned = append(m.Owned, kafka.TopicPartition{
				Topic: rapid.SampledFrom(names).Draw(t, "topic"), Partition: rapid.Int32Range(-1, 13).Draw(t, "partition"),
			})
		}
		w.members = append(w.members, m)
	}
	return w
}

// owners checks that nobody got what it should not, and returns who got what.
func (w world) owners(t *rapid.T, plan assignor.Plan) map[kafka.TopicPartition]string {
	owners := map[kafka.TopicPartition]string{}
	if len(plan) != len(w.members) {
		t.Fatalf("%d members in the plan of %d", len(plan), len(w.members))
	}
	for _, m := range w.members {
		if !slices.IsSortedFunc(plan[m.ID], kafka.TopicPartition.Compare) {
			t.Fatalf("not in order: %v", plan[m.ID])
		}
		for _, tp := range plan[m.ID] {
			if other, ok := owners[tp]; ok {
				t.Fatalf("%v for %s and %s", tp, other, m.ID)
			}
			if !slices.Contains(m.Topics, tp.Topic) || tp.Partition < 0 || tp.Partition >= w.counts[tp.Topic] {
				t.Fatalf("%s got %v of %v", m.ID, tp, w.counts)
			}
			owners[tp] = m.ID
		}
	}
	return owners
}

func (w world) wanted() int {
	n := 0
	for topic, count := range w.counts {
		if slices.ContainsFunc(w.members, func(m assignor.Member) bool { return slices.Contains(m.Topics, topic) }) {
			n += int(count)
		}
	}
	return n
}

// TestEveryPartitionHasOneOwner, whatever members claim and in whatever order
// they come.
func TestEveryPartitionHasOneOwner(t *testing.T) {
	for _, strategy := range []string{assignor.Range, assignor.RoundRobin, assignor.Sticky} {
		t.Run(strategy, rapid.MakeCheck(func(t *rapid.T) {
			w := drawWorld(t, rapid.Bool().Draw(t, "alike"))
			plan := assignor.New(strategy, w.members, w.counts)
			if got, want := len(w.owners(t, plan)), w.wanted(); got != want {
				t.Fatalf("%d of %d partitions have an owner", got, want)
			}
			shuffled := slices.Clone(w.members)
			r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order")))
			r.Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
			if diff := gocmp.Diff(plan, assignor.New(strategy, shuffled, w.counts)); diff != "" {
				t.Fatal(diff)
			}
		}))
	}
}

// claim makes the members claim what a plan gave them.
func (w world) claim(plan assignor.Plan, generation int32) world {
	members := slices.Clone(w.members)
	for i := range members {
		members[i].Owned, members[i].Generation = plan[members[i].ID], generation
	}
	return world{members, w.counts}
}

// TestStickyIsEvenAndKeeps: the load is even, and a plan that is carried out is
// the next plan.
func TestStickyIsEvenAndKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		plan := assignor.New(assignor.Sticky, w.members, w.counts)
		least, most := 1<<30, 0
		for _, m := range w.members {
			least, most = min(least, len(plan[m.ID])), max(most, len(plan[m.ID]))
		}
		if most-least > 1 {
			t.Fatalf("one has %d and another %d", most, least)
		}
		again := w.claim(plan, 5)
		if diff := gocmp.Diff(plan, assignor.New(assignor.Sticky, again.members, again.counts)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestStickyMovesNoMoreThanItMust: when a member of a group that was even comes
// or goes, the others keep what they may.
func TestStickyMovesNoMoreThanItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		w = w.claim(assignor.New(assignor.Sticky, w.members, w.counts), 5)
		newcomer := assignor.Member{ID: "new", Topics: w.members[0].Topics, Generation: -1}
		w.members = append(w.members, newcomer)
		plan := assignor.New(assignor.Sticky, w.members, w.counts)
		for _, m := range w.members[:len(w.members)-1] {
			for _, tp := range plan[m.ID] {
				if !slices.Contains(m.Owned, tp) {
					t.Fatalf("%s got %v, which is not its own", m.ID, tp)
				}
			}
		}
	})
}

// TestCooperativeHandsOverInTwoSteps: nothing is taken from an owner and given
// to another in one plan, and a second plan, for members that gave up what they
// should, is complete.
func TestCooperativeHandsOverInTwoSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, rapid.Bool().Draw(t, "alike"))
		first := assignor.New(assignor.Cooperative, w.members, w.counts)
		latest := map[kafka.TopicPartition]int32{}
		for _, m := range w.members {
			for _, tp := range m.Owned {
				if g, ok := latest[tp]; !ok || m.Generation > g {
					latest[tp] = m.Generation
				}
			}
		}
		claimants := map[kafka.TopicPartition]map[string]bool{}
		for _, m := range w.members {
			for _, tp := range m.Owned {
				if m.Generation == latest[tp] && slices.Contains(m.Topics, tp.Topic) {
					if claimants[tp] == nil {
						claimants[tp] = map[string]bool{}
					}
					claimants[tp][m.ID] = true
				}
			}
		}
		for tp, id := range w.owners(t, first) {
			if c := claimants[tp]; len(c) == 1 && !c[id] {
				t.Fatalf("%v went from %v to %s at once", tp, slices.Collect(maps.Keys(c)), id)
			}
		}
		next := w.claim(first, 5)
		second := assignor.New(assignor.Cooperative, next.members, next.counts)
		if got, want := len(w.owners(t, second)), w.wanted(); got != want {
			t.Fatalf("after two plans %d of %d partitions have an owner", got, want)
		}
	})
}

func TestUnknownStrategy(t *testing.T) {
	if assignor.Supported("magic") || !assignor.Supported(assignor.Range) {
		t.Error("Supported")
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	assignor.New("magic", nil, nil)
}

func BenchmarkSticky(b *testing.B) {
	var members []assignor.Member
	for i := range 100 {
		members = append(members, member(fmt.Sprint("m", i), "t", ""))
	}
	counts := map[string]int32{"t": 1000}
	plan := assignor.New(assignor.Sticky, members, counts)
	for i := range members {
		members[i].Owned = plan[members[i].ID]
	}
	members = append(members, member("new", "t", ""))
	for b.Loop() {
		assignor.New(assignor.Cooperative, members, counts)
	}
}
