package metadata_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/metadata"
)

var legalName = regexp.MustCompile(`\A[a-zA-Z0-9._-]{1,249}\z`)

// legal is Kafka's rule, said another way than in the product.
func legal(name string) bool { return legalName.MatchString(name) && name != "." && name != ".." }

func TestTopicNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "orders.v1_x-2": true, "...": true, "__consumer_offsets": true,
		strings.Repeat("a", 249): true, strings.Repeat("a", 250): false,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "a\\b": false,
		"ä": false, "a\x00": false, "a\n": false, "../etc": false, "a:b": false,
	} {
		err := metadata.CheckTopicName(name)
		if (err == nil) != want {
			t.Errorf("%.20q: %v", name, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%.20q: the message has %d bytes", name, len(err.Error()))
		}
	}
}

func FuzzTopicName(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a", "a.b_c-D9", strings.Repeat("x", 250), "é", "a\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if err := metadata.CheckTopicName(name); (err == nil) != legal(name) {
			t.Fatalf("%q: %v", name, err)
		}
	})
}

func TestCollisionKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.StringMatching(`[ab._]{1,6}`)
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		metric := func(s string) string {
			return strings.Map(func(r rune) rune {
				if r == '.' {
					return '_'
				}
				return r
			}, s)
		}
		if (metadata.CollisionKey(a) == metadata.CollisionKey(b)) != (metric(a) == metric(b)) {
			t.Fatalf("%s and %s", a, b)
		}
	})
}
