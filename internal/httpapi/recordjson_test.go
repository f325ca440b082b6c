package httpapi

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/record"
)

func testPage(f form) *page {
	return &page{form: f, server: &server{bodies: semaphore.NewWeighted(64 << 20), answers: semaphore.NewWeighted(64 << 20)}}
}

// described is what the API's types say a record looks like.
func described(r *record.Record, text bool) ConsumedRecord {
	value := func(b []byte) ([]byte, *string) {
		if text && b != nil && utf8.Valid(b) {
			s := string(b)
			return nil, &s
		}
		return b, nil
	}
	d := ConsumedRecord{Partition: 7, Offset: int64(r.Offset), Timestamp: r.Timestamp / 1000, TimestampMs: r.Timestamp}
	if r.Key != nil && utf8.Valid(r.Key) {
		s := string(r.Key)
		d.Key = &s
	} else {
		d.KeyBase64 = r.Key
	}
	d.Value, d.ValueText = value(r.Value)
	for _, h := range r.Headers {
		x := ConsumedHeader{Key: h.Key}
		x.Value, x.ValueText = value(h.Value)
		d.Headers = append(d.Headers, x)
	}
	return d
}

// TestRecordsAsDescribed: what is written by hand is what the types say, whatever
// is in a record.
func TestRecordsAsDescribed(t *testing.T) {
	some := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.Just([]byte("\x00\t\n\r\"\\/\x7f<>&\u2028é\U0001f600")), rapid.Just([]byte(nil)))
	rapid.Check(t, func(t *rapid.T) {
		p := testPage(inArray)
		p.text = rapid.Bool().Draw(t, "text")
		r := record.Record{
			Offset: 1 << 40, Timestamp: rapid.Int64Range(0, 1<<45).Draw(t, "timestamp"),
			Key: some.Draw(t, "key"), Value: some.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, record.Header{Key: rapid.String().Draw(t, "name"), Value: some.Draw(t, "header")})
		}
		p.Add(7, &r)
		var got ConsumedRecord
		d := json.NewDecoder(bytes.NewReader(p.out))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%s: %v", p.out, err)
		}
		if diff := cmp.Diff(described(&r, p.text), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s\n%s", p.out, diff)
		}
		if bytes.ContainsAny(p.out, "\n\r") {
			t.Fatalf("%q has a line break, which ends an event", p.out)
		}
	})
}

// TestPageRewinds: what was taken back leaves no trace, and a page that is out of
// the budget says so.
func TestPageRewinds(t *testing.T) {
	r := &record.Record{Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: idempotency.KeyHeader}}}
	const one = `{"partition":1,"offset":0,"timestamp":0,"timestamp_ms":0,"key":"k","value":"dg=="}`
	p := testPage(inArray)
	mark := p.Mark()
	p.Add(1, r)
	p.Rewind(mark)
	p.Add(1, r)
	mark = p.Mark()
	p.Add(1, r)
	p.Add(1, r)
	p.Rewind(mark)
	p.Add(1, r)
	if got := string(p.out); got != one+","+one {
		t.Errorf("got %s", got)
	}
	for n := 0; p.Add(1, &record.Record{Value: make([]byte, 1<<20)}); n++ {
		if n > 64 {
			t.Fatal("no end")
		}
	}
	p.empty()
	if !p.server.bodies.TryAcquire(64 << 20) {
		t.Error("the budget was not given back")
	}
}

// TestPageIsPaidFor: what the budget has no room for is not kept.
func TestPageIsPaidFor(t *testing.T) {
	small, large := &record.Record{Value: make([]byte, 100)}, &record.Record{Value: make([]byte, 1<<20)}
	for _, c := range []struct {
		name    string
		left    int64
		records []*record.Record
		want    bool
	}{
		{"nothing to pay", 0, nil, false},
		{"nothing left", 0, []*record.Record{small}, true},
		{"a step left", pageStep, []*record.Record{small}, false},
		{"a step left for a large one", pageStep, []*record.Record{large}, true},
		{"a step left for a large one behind another", pageStep, []*record.Record{small, large}, true},
		{"enough left", 64 << 20, []*record.Record{small, large}, false},
	} {
		p := testPage(inArray)
		p.server.bodies.TryAcquire(64<<20 - c.left)
		for _, r := range c.records {
			p.Add(1, r)
		}
		if got := p.unpaid(); got != c.want {
			t.Errorf("%s: unpaid %t", c.name, got)
		}
	}
}

// TestForms: a line each, and an event each whose id says where it is.
func TestForms(t *testing.T) {
	r := &record.Record{Offset: 5, Timestamp: -1500}
	for f, want := range map[form]string{
		inLines:  `{"partition":1,"offset":5,"timestamp":-2,"timestamp_ms":-1500,"value":null}` + "\n",
		inEvents: "id: 1:5\n" + `data: {"partition":1,"offset":5,"timestamp":-2,"timestamp_ms":-1500,"value":null}` + "\n\n",
	} {
		p := testPage(f)
		p.Add(1, r)
		p.Add(1, r)
		if got := string(p.out); got != want+want {
			t.Errorf("got %q", got)
		}
	}
}
