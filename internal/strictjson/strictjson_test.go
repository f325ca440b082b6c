package strictjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/strictjson"
)

// document has a field of every type.
type document struct {
	embedded
	Text   string            `json:"text"`
	Maybe  *string           `json:"maybe"`
	Bytes  []byte            `json:"bytes"`
	Flag   bool              `json:"flag"`
	Small  int8              `json:"small"`
	Big    int64             `json:"big"`
	List   []inner           `json:"list"`
	Map    map[string]string `json:"map"`
	Ignore string
}

type embedded struct {
	Below int32 `json:"below"`
}

type inner struct {
	X int32 `json:"x"`
}

func TestDecode(t *testing.T) {
	var d document
	err := strictjson.Decode([]byte(" {\"text\":\"a\\u00e9\\ud83d\\ude00\\n\\/\\\"é\",\"maybe\":null,\"bytes\":\"AQI\\/\",\n\t\"flag\":true,"+
		`"small":-128,"big":9223372036854775807,"list":[{"x":1},{}],"map":{"k":"v","":"w"},"below":7} `), &d)
	want := document{
		embedded: embedded{7}, Text: "aé😀\n/\"é", Bytes: []byte{1, 2, 63}, Flag: true, Small: -128, Big: math.MaxInt64,
		List: []inner{{1}, {0}}, Map: map[string]string{"k": "v", "": "w"},
	}
	if diff := cmp.Diff(want, d, cmp.AllowUnexported(document{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, "the JSON ends after 0 bytes, where an object should be"},
		{`x`, "the JSON is malformed at byte 0: there is 'x' where an object should be"},
		{`null`, "want an object, not null"},
		{`{`, "the JSON ends after 1 bytes, where a key in quotes should be"},
		{`{x`, "the JSON is malformed at byte 1: there is 'x' where a key in quotes should be"},
		{`{"text"}`, "the JSON is malformed at byte 7: there is '}' where ':' should be"},
		{`{"text":"a",}`, "text: the JSON is malformed at byte 12: there is '}' where another element, after the comma, should be"},
		{`{"text":"a"`, "text: the JSON ends after 11 bytes, where ',' or '}' should be"},
		{`{"text":"a`, "text: the JSON ends after 10 bytes, where the end of a string should be"},
		{"{\"text\":\"a\x01\"}", "text: the JSON is malformed at byte 10: there is '\\x01' where no control character (write it as an escape) should be"},
		{`{"text":"\x"}`, "text: the JSON is malformed at byte 10: there is 'x' where one of \"\\/bfnrtu (after a backslash) should be"},
		{`{"text":"\u12G4"}`, "text: the JSON is malformed at byte 13: there is 'G' where four hexadecimal digits should be"},
		{`{"text":"\ud800"}`, "text: the text has half of a surrogate pair, which is no character"},
		{`{"text":"\udc00\ud800"}`, "text: the text has half of a surrogate pair, which is no character"},
		{"{\"text\":\"\xc3\"}", "text: the text is not valid UTF-8: bytes that are no text go in base64"},
		{"{\"text\":\"\xc3\\n\"}", "text: the text is not valid UTF-8: bytes that are no text go in base64"},
		{`{"text":1}`, "text: want a string, not a number"},
		{`{"text":null}`, "text: want a string, not null"},
		{`{"flag":"true"}`, "flag: want a boolean, not a string"},
		{`{"flag":tru}`, "flag: the JSON is malformed at byte 8: there is 't' where true should be"},
		{`{"small":128}`, "small: 128 is out of range: want -128 to 127"},
		{`{"small":1.0}`, "small: want a whole number, not 1.0"},
		{`{"small":1e1}`, "small: want a whole number, not 1e1"},
		{`{"small":01}`, "small: want a whole number, not 01"},
		{`{"small":-}`, "small: want a whole number, not -"},
		{`{"small":-0}`, "small: want a whole number, not -0"},
		{`{"big":9223372036854775808}`, "big: 9223372036854775808 is out of range: want 64 bits"},
		{`{"bytes":[]}`, "bytes: want a string in base64, not an array"},
		{"{\"bytes\":\"QQ\n==\"}", "bytes: the JSON is malformed at byte 12: there is '\\n' where no line break should be"},
		{`{"list":{}}`, "list: want an array, not an object"},
		{`{"list":[{"x":1},{"x":"1"}]}`, "list[1].x: want a whole number, not a string"},
		{`{"list":[{"x":1},{"y":1}]}`, `list[1]: unknown field "y": did you mean "x"?`},
		{`{"list":[{"x":1,"x":2}]}`, `list[0]: field "x" is given twice`},
		{`{"list":[{"x":1},]}`, "list[0]: the JSON is malformed at byte 17: there is ']' where another element, after the comma, should be"},
		{`{"map":{"a":"1","a":"2"}}`, `map: key "a" is given twice`},
		{`{"map":{"a":1}}`, "map.a: want a string, not a number"},
		{`{"map":{"":1}}`, `map."": want a string, not a number`},
		{`{"zzzzzzzz":1}`, `unknown field "zzzzzzzz": the fields are below, text, maybe, bytes, flag, small, big, list, map`},
		{`{"` + strings.Repeat("z", 100) + `":1}`, `unknown field "` + strings.Repeat("z", 60) + `"...`},
		{`{"Text":""}`, `unknown field "Text": did you mean "text"?`},
		{`{"Ignore":""}`, `unknown field "Ignore": the fields are below, text, maybe, bytes, flag, small, big, list, map`},
		{`{} {}`, "there is more after the end of the JSON value, at byte 3: send one value"},
		{"{}\x00", "there is more after the end of the JSON value, at byte 2: send one value"},
	} {
		var d document
		err := strictjson.Decode([]byte(c.in), &d)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

func TestBase64(t *testing.T) {
	for in, want := range map[string]string{
		`"QUJD"`: "ABC", `""`: "", `"QQ=="`: "A", `"QU\nI="`: "AB", `"\/\/8="`: "\xff\xff",
		`"QQ="`:   "!not valid base64: it ends early, or its padding (=) is missing",
		`"QQ"`:    "!not valid base64: it ends early, or its padding (=) is missing",
		`"QQ==Q"`: "!not valid base64: 'Q' at position 4", `"Q-A="`: "!not valid base64: '-' at position 1 is of the URL-safe alphabet",
		`"Qé=="`: "!not valid base64: 'é' at position 1", `"QUJD`: "!the JSON ends after 5 bytes",
	} {
		var r strictjson.Reader
		r.Reset([]byte(in))
		got := string(r.Base64([]byte("x")))
		if message, bad := strings.CutPrefix(want, "!"); bad {
			if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), message) {
				t.Errorf("%s: %v, want %s", in, err, message)
			}
			continue
		}
		if err := r.End(); err != nil || got != "x"+want {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
}

// nested is a struct in itself, to be as deep as a stranger likes.
type nested struct {
	Next *nested `json:"n"`
}

func TestDepth(t *testing.T) {
	var d nested
	err := strictjson.Decode([]byte(strings.Repeat(`{"n":`, 100)+"null"+strings.Repeat("}", 100)), &d)
	if err == nil || !strings.HasSuffix(err.Error(), "it nests deeper than 8 levels") {
		t.Errorf("got %v", err)
	}
}

// FuzzDecode: what is accepted, encoding/json accepts with the same outcome.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"text":"a","list":[{"x":1}],"map":{"a":"b"},"bytes":"QQ=="}`, `{"maybe":"\ud83d\ude00","small":-1,"flag":false}`,
		`{"text":"a","text":"b"}`, `{"big":1e3}`, `[]`, ` {} `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var ours, theirs document
		kept := bytes.Clone(src)
		if err := strictjson.Decode(src, &ours); err != nil {
			return
		}
		if !bytes.Equal(kept, src) {
			t.Fatal("the source was changed")
		}
		d := json.NewDecoder(bytes.NewReader(src))
		d.DisallowUnknownFields()
		if err := d.Decode(&theirs); err != nil {
			t.Fatalf("encoding/json says %v", err)
		}
		if diff := cmp.Diff(theirs, ours, cmp.AllowUnexported(document{})); diff != "" {
			t.Fatalf("(-json +strictjson):\n%s", diff)
		}
	})
}
