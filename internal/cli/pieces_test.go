package cli_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/internal/record"
)

func TestPositions(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for _, c := range []struct {
		text, kind string
		n          int64
	}{
		{"start", "start", 0},
		{"Earliest", "start", 0},
		{"end", "end", 0},
		{"0", "offset", 0},
		{"42", "offset", 42},
		{"-10", "last", 10},
		{"@1763372400000", "time", 1763372400000},
		{"2026-05-17T09:30:00Z", "time", 1779010200000},
		{"2026-05-17T09:30:00.5+02:00", "time", 1779003000500},
		{"90m", "time", 1_800_000_000_000 - 90*60*1000},
		{"2d", "time", 1_800_000_000_000 - 2*24*3600*1000},
	} {
		kind, n, err := cli.ParsePosition(c.text, now)
		if err != nil || kind != c.kind || n != c.n {
			t.Errorf("%q: %s %d %v, want %s %d", c.text, kind, n, err, c.kind, c.n)
		}
	}
	for _, text := range []string{
		"", "@", "@-1", "-", "1.5", "d", "-2h", "tomorrow",
		"-9223372036854775808", "9223372036854775808",
	} {
		if kind, n, err := cli.ParsePosition(text, now); err == nil {
			t.Errorf("%q is no position and was taken for %s %d", text, kind, n)
		}
	}
}

func TestFormats(t *testing.T) {
	r := &kgo.Record{
		Topic: "orders", Partition: 3, Offset: 42, Timestamp: time.UnixMilli(1779010200123),
		Key: []byte("k"), Value: []byte{0, 0xff, 'a'},
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "i"}},
	}
	for _, c := range []struct{ format, want string }{
		{"{topic}-{partition}@{offset}", "orders-3@42"},
		{`{key}\t{value:hex}\n`, "k\t00ff61\n"},
		{"{value:base64} {key:json} {header.none:json}", `AP9h "k" null`},
		{"{headers} {header.h} {key_size} {value_size}", "h=x,i= x 1 3"},
		{"{timestamp} {timestamp_ms}", "2026-05-17T09:30:00.123Z 1779010200123"},
		{`\{{key}\} \\ \0`, "{k} \\ \x00"},
		{"", ""},
	} {
		got, err := cli.FormatRecord(c.format, false, r)
		if err != nil || got != c.want {
			t.Errorf("%q: %q %v, want %q", c.format, got, err, c.want)
		}
	}
	if got, _ := cli.FormatRecord("{value}", true, r); got != `\u0000\xffa` {
		t.Errorf("a terminal got %q", got)
	}
	for _, format := range []string{"{", "{key", "{}", "{kee}", "{key:rot13}", "{offset:hex}", `\q`} {
		if got, err := cli.FormatRecord(format, false, r); err == nil {
			t.Errorf("%q is no format and gave %q", format, got)
		}
	}
}

// drawBytes draws bytes that are null now and then.
func drawBytes(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" is null") {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, label)...)
}

// TestRecordJSON: whatever is in a record survives the way through JSON.
func TestRecordJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &kgo.Record{
			Partition: -1, Key: drawBytes(t, "key"), Value: drawBytes(t, "value"),
			Timestamp: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "time")).UTC(),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			want.Headers = append(want.Headers, kgo.RecordHeader{
				Key: rapid.String().Draw(t, "header"), Value: drawBytes(t, "header value"),
			})
		}
		line, err := cli.RecordJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", line)
		}
		got, err := cli.ParseRecordJSON(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got.Timestamp = got.Timestamp.UTC()
		if d := cmp.Diff(project(want), project(got)); d != "" {
			t.Fatalf("%s\n%s", line, d)
		}
	})
}

// project leaves out what a client adds to a record.
func project(r *kgo.Record) map[string]any {
	return map[string]any{
		"key": r.Key, "value": r.Value, "headers": r.Headers, "time": r.Timestamp,
		"partition": r.Partition,
	}
}

func TestReadLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for range rapid.IntRange(0, 20).Draw(t, "lines") {
			n := rapid.SampledFrom([]int{0, 1, 7, 100, 9000, 300_000}).Draw(t, "length")
			text.WriteString(strings.Repeat(rapid.StringMatching("[a-z]").Draw(t, "letter"), n))
			text.WriteByte('\n')
		}
		text.WriteString(rapid.StringMatching("[a-z]{0,3}").Draw(t, "last line"))
		want := strings.Split(text.String(), "\n")
		if last := len(want) - 1; want[last] == "" {
			want = want[:last]
		}
		got, err := cli.ReadLines(strings.NewReader(text.String()))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d lines (%v), want %d", len(got), err, len(want))
		}
	})
}

// TestQuantiles: a quantile is exact but for a part in 64.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 200).Draw(t, "durations")
		var h cli.Histogram
		for _, d := range all {
			h.Add(time.Duration(d))
		}
		slices.Sort(all)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		rank := max(1, int(math.Ceil(q*float64(len(all)))))
		want := all[rank-1]
		if got := int64(h.Quantile(q)); got < want || float64(got) > float64(want)*(1+1.0/64)+1 {
			t.Fatalf("quantile %v of %d: %d, want %d", q, len(all), got, want)
		}
	})
	var h cli.Histogram
	h.Add(math.MaxInt64)
	if got := h.Quantile(1); got != math.MaxInt64 {
		t.Errorf("the longest duration came back as %d", got)
	}
}

// TestMovedKeys counts hashes instead of reasoning about them.
func TestMovedKeys(t *testing.T) {
	for have := 1; have <= 8; have++ {
		for want := have + 1; want <= 16; want++ {
			moved, all := 0, have*want
			for h := range all {
				if h%have != h%want {
					moved++
				}
			}
			exact := 100 * float64(moved) / float64(all)
			if got := cli.MovedKeys(have, want); math.Abs(float64(got)-exact) > 1 {
				t.Errorf("%d to %d: %d%%, want %.1f%%", have, want, got, exact)
			}
		}
	}
}

func TestTable(t *testing.T) {
	aligned, plain := cli.Table([]string{"name", ">n", "last"},
		[][]string{{"a", "1", "x"}, {"größer", "1000", "tab\there\nend\\"}})
	wantAligned := "NAME       N  LAST\na          1  x\ngrößer  1000  tab\\there\\nend\\\n"
	wantPlain := "a\t1\tx\ngrößer\t1000\ttab\\there\\nend\\\\\n"
	if aligned != wantAligned {
		t.Errorf("people got\n%s", aligned)
	}
	if plain != wantPlain {
		t.Errorf("scripts got\n%s", plain)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567",
		math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := cli.Thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB",
		5 << 30: "5.0 GiB", math.MaxInt64: "8192.0 PiB",
	} {
		if got := cli.ByteSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestBatches walks over a segment that ends at every possible byte.
func TestBatches(t *testing.T) {
	var segment []byte
	var ends []int
	b := record.NewBuilder(record.CodecNone, record.DefaultLevel)
	for range 3 {
		b.Append(1000, nil, []byte("value"), nil)
		batch, _, err := record.Next(b.Build())
		if err != nil {
			t.Fatal(err)
		}
		segment = append(segment, batch.Bytes()...)
		ends = append(ends, len(segment))
	}
	for n := range len(segment) + 1 {
		offsets, err := cli.Batches(segment[:n])
		whole := 0
		for whole < len(ends) && ends[whole] <= n {
			whole++
		}
		atEnd := n == 0 || whole > 0 && ends[whole-1] == n
		if len(offsets) != whole || (err == nil) != atEnd {
			t.Fatalf("cut at %d: %d batches and %v, want %d", n, len(offsets), err, whole)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[2J\x00\xff\u202e\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range cli.Visible(s) {
			if r < ' ' || r == utf8.RuneError || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e {
				t.Fatalf("%q shows %q", s, r)
			}
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n"))
	f.Add([]byte{0, 0, 0, 5, 0, 0, 0, 1, 9})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		answer, err := cli.ReadAnswer(bytes.NewReader(b))
		if err == nil && len(answer) > len(b)-8 {
			t.Fatalf("%d bytes of answer in %d", len(answer), len(b))
		}
	})
}

func FuzzParseRecordJSON(f *testing.F) {
	f.Add([]byte(`{"key":"k","value":"v","timestamp":"2026-05-17T09:30:00Z",` +
		`"headers":[{"key":"h","value_base64":"AA=="}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := cli.ParseRecordJSON(line)
		if err != nil {
			return
		}
		if _, err := cli.RecordJSON(r); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzBatches(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	f.Fuzz(func(_ *testing.T, segment []byte) { _, _ = cli.Batches(segment) })
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("listen: 1\nsettings:\n  a.b: [1, 2]\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = cli.ParseConfig(data) })
}
