package idempotency_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

func digest(s string) idempotency.Digest { return idempotency.DigestKey([]byte(s)) }

func TestMark(t *testing.T) {
	headers := []record.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}
	content := idempotency.DigestContent([]byte("k"), []byte("v"), headers)
	r := record.Record{Key: []byte("k"), Value: []byte("v"), Headers: idempotency.AppendMark(headers[:2:2], []byte("id"), content)}
	key, got, ok := idempotency.ReadMark(&r)
	if !ok || key != digest("id") || got != content {
		t.Fatalf("%v %v %v", key, got, ok)
	}
	hash := r.Headers[3].Value
	for name, spoil := range map[string]func(*record.Record){
		"no headers":     func(r *record.Record) { r.Headers = nil },
		"one header":     func(r *record.Record) { r.Headers = r.Headers[3:] },
		"not the last":   func(r *record.Record) { r.Headers = append(r.Headers, record.Header{Key: "c"}) },
		"another order":  func(r *record.Record) { r.Headers = []record.Header{r.Headers[3], r.Headers[2]} },
		"another value":  func(r *record.Record) { r.Value = []byte("w") },
		"another key":    func(r *record.Record) { r.Key = nil },
		"another header": func(r *record.Record) { r.Headers[1].Value = []byte{} },
		"short hash":     func(r *record.Record) { r.Headers[3].Value = hash[:16] },
		"newer version":  func(r *record.Record) { r.Headers[3].Value = append([]byte{2}, hash[1:]...) },
	} {
		x := r
		x.Headers = append([]record.Header(nil), r.Headers...)
		spoil(&x)
		if _, _, ok := idempotency.ReadMark(&x); ok {
			t.Errorf("%s: it has a mark all the same", name)
		}
	}
}

// No two contents read the same.
func TestDigestContent(t *testing.T) {
	seen := map[idempotency.Digest]string{}
	parts := [][]byte{nil, {}, []byte("a"), []byte("aa"), []byte("\x02a")}
	for _, key := range parts {
		for _, value := range parts {
			for _, headers := range [][]record.Header{
				nil,
				{{Key: ""}},
				{{Key: "a"}},
				{{Key: "", Value: []byte("a")}},
				{{Key: "a", Value: []byte{}}},
				{{Key: "a"}, {Key: "a"}},
			} {
				name := fmt.Sprintf("%#v %#v %#v", key, value, headers)
				d := idempotency.DigestContent(key, value, headers)
				if other, ok := seen[d]; ok {
					t.Errorf("%s reads as %s", name, other)
				}
				seen[d] = name
			}
		}
	}
}

func TestTable(t *testing.T) {
	table, b := idempotency.NewTable(), idempotency.Bounds{WindowMs: 100, MaxKeys: 2}
	place := func(partition int32, offset kafka.Offset, ms int64) idempotency.Place {
		return idempotency.Place{Partition: partition, Offset: offset, TimestampMs: ms}
	}
	check := func(key string, nowMs int64, want idempotency.Outcome, at idempotency.Place) {
		t.Helper()
		got, outcome := table.Check(digest(key), digest("content"), b, nowMs)
		if outcome != want || got != at {
			t.Errorf("%s at %d: %v %+v, want %v %+v", key, nowMs, outcome, got, want, at)
		}
	}
	none := idempotency.Place{}
	check("a", 0, idempotency.New, none)
	table.Observe(digest("a"), digest("content"), place(1, 7, 1000), b)
	check("a", 1000, idempotency.Repeated, place(1, 7, 1000))
	check("a", 500, idempotency.Repeated, place(1, 7, 1000)) // A clock that went back.
	check("a", 1099, idempotency.Repeated, place(1, 7, 1000))
	check("a", 1100, idempotency.New, none)
	if _, outcome := table.Check(digest("a"), digest("other"), b, 1000); outcome != idempotency.Conflict {
		t.Errorf("another content: %v", outcome)
	}
	// The first record counts, until its time is over.
	table.Observe(digest("a"), digest("content"), place(2, 0, 1050), b)
	check("a", 1060, idempotency.Repeated, place(1, 7, 1000))
	table.Observe(digest("a"), digest("content"), place(2, 1, 1100), b)
	check("a", 1110, idempotency.Repeated, place(2, 1, 1100))
	table.Expire(1, b, 1110) // The old one goes and leaves the new one.
	check("a", 1110, idempotency.Repeated, place(2, 1, 1100))
	// The oldest goes first.
	table.Observe(digest("b"), digest("content"), place(2, 2, 1101), b)
	table.Observe(digest("c"), digest("content"), place(2, 3, 1102), b)
	check("a", 1110, idempotency.New, none)
	check("b", 1110, idempotency.Repeated, place(2, 2, 1101))
	if keys, oldest := table.Kept(2); keys != 2 || oldest != 1101 {
		t.Errorf("%d keys, the oldest of %d", keys, oldest)
	}
	table.Forget(2)
	table.Forget(3)
	check("b", 1110, idempotency.New, none)
	if keys, _ := table.Kept(2); keys != 0 {
		t.Errorf("%d keys", keys)
	}
}

// Keys that are dropped for want of room are counted, and which partition has the
// most is known.
func TestEviction(t *testing.T) {
	table, b := idempotency.NewTable(), idempotency.Bounds{WindowMs: 100, MaxKeys: 3}
	observe := func(partition int32, key string, ms int64) int {
		return table.Observe(digest(key), digest("content"), idempotency.Place{Partition: partition, TimestampMs: ms}, b)
	}
	known := func(key string) bool {
		_, outcome := table.Check(digest(key), digest("content"), b, 0)
		return outcome == idempotency.Repeated
	}
	if _, keys := table.Largest(); keys != 0 {
		t.Errorf("an empty table has %d keys", keys)
	}
	for i, key := range []string{"a", "b", "c"} {
		if n := observe(1, key, int64(i)); n != 0 {
			t.Errorf("%d evicted", n)
		}
	}
	observe(2, "x", 0)
	if i, keys := table.Largest(); i != 1 || keys != 3 || table.Keys() != 4 {
		t.Errorf("%d has %d of %d keys", i, keys, table.Keys())
	}
	if n := observe(1, "d", 3); n != 1 || known("a") || !known("b") {
		t.Errorf("%d evicted for want of room", n)
	}
	if n := observe(1, "e", 200); n != 0 || table.Keys() != 2 { // The others' time is over.
		t.Errorf("%d evicted, %d keys", n, table.Keys())
	}
	observe(1, "f", 201)
	if n := table.Evict(1, 1); n != 1 || known("e") || !known("f") {
		t.Errorf("%d evicted", n)
	}
	if n := table.Evict(1, 5) + table.Evict(2, 5) + table.Evict(3, 5); n != 2 || table.Keys() != 0 || len(table.Partitions()) != 0 {
		t.Errorf("%d evicted, %d left in %v", n, table.Keys(), table.Partitions())
	}
}

// A table that has shrunk gives memory back.
func TestMemoryOfATableThatShrank(t *testing.T) {
	const keys = 200_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	table, b := idempotency.NewTable(), idempotency.Bounds{WindowMs: 1 << 40, MaxKeys: keys}
	for i := range keys {
		table.Observe(digest(fmt.Sprint(i)), digest("c"), idempotency.Place{Offset: kafka.Offset(i)}, b)
	}
	full := heap() - before
	table.Evict(0, keys-100)
	left := heap() - before
	if left > full/10 {
		t.Errorf("100 of %d keys take %d of %d bytes", keys, left, full)
	}
	t.Logf("%d bytes a key", full/keys)
	if n, _ := table.Kept(0); n != 100 {
		t.Errorf("%d keys", n)
	}
}

// modelEntry is an entry of the model: a list, looked through from its end.
type modelEntry struct {
	key       string
	partition int32
	offset    kafka.Offset
	ms        int64
}

// Whatever happens, the table says what a list that is looked through would say.
func TestTableAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := idempotency.Bounds{WindowMs: 50, MaxKeys: 1 + random.IntN(100)}
		table := idempotency.NewTable()
		var model []modelEntry
		find := func(key string, ms int64) *modelEntry {
			for i := len(model) - 1; i >= 0; i-- {
				if model[i].key == key {
					if ms-model[i].ms < b.WindowMs {
						return &model[i]
					}
					return nil
				}
			}
			return nil
		}
		trim := func(partition int32, ms int64) {
			for {
				first, count := -1, 0
				for i := range model {
					if model[i].partition == partition {
						if count++; first < 0 {
							first = i
						}
					}
				}
				if first < 0 || count <= b.MaxKeys && ms-model[first].ms < b.WindowMs {
					return
				}
				model = append(model[:first:first], model[first+1:]...)
			}
		}
		ms := int64(0)
		for step := range 400 {
			ms += int64(random.IntN(3))
			key, partition := fmt.Sprint(random.IntN(150)), int32(random.IntN(3))
			got, outcome := table.Check(digest(key), digest("c"), b, ms)
			want := find(key, ms)
			if (outcome == idempotency.Repeated) != (want != nil) || want != nil &&
				got != (idempotency.Place{Partition: want.partition, Offset: want.offset, TimestampMs: want.ms}) {
				t.Fatalf("seed %d, step %d: %v %+v, want %+v", seed, step, outcome, got, want)
			}
			switch random.IntN(20) {
			case 0:
				table.Expire(partition, b, ms)
				trim(partition, ms)
			case 1:
				n := random.IntN(5)
				table.Evict(partition, n)
				for ; n > 0; n-- {
					if i := slices.IndexFunc(model, func(e modelEntry) bool { return e.partition == partition }); i >= 0 {
						model = slices.Delete(model, i, i+1)
					}
				}
			default:
				table.Observe(digest(key), digest("c"), idempotency.Place{Partition: partition, Offset: kafka.Offset(step), TimestampMs: ms}, b)
				if want == nil {
					model = append(model, modelEntry{key, partition, kafka.Offset(step), ms})
					trim(partition, ms)
				}
			}
			if table.Keys() != len(model) {
				t.Fatalf("seed %d, step %d: %d keys, want %d", seed, step, table.Keys(), len(model))
			}
		}
	}
}
