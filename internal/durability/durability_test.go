package durability_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/durability"
)

// factsOf are those of a topic that was created with a choice, under a broker's
// defaults.
func factsOf(c durability.Choice) durability.Facts {
	defaults := map[string]string{
		"min.insync.replicas": "1", "flush.messages": "1", "unclean.leader.election.enable": "true",
	}
	return durability.FactsOf(c.ReplicationFactor, func(name string) string {
		if v, ok := c.Settings[name]; ok {
			return v
		}
		return defaults[name]
	})
}

// What is chosen is what is described afterwards, whatever the broker's defaults are.
func TestChoiceIsKept(t *testing.T) {
	for _, word := range durability.Names() {
		for _, brokers := range []int{1, 2, 3, 5} {
			for _, asked := range []int{0, 1, 2, 3, 5} {
				c, err := durability.Choose(word, brokers, asked)
				if err != nil {
					var few *durability.TooFewError
					if !errors.As(err, &few) || word == "relaxed" || brokers >= 3 && (asked == 0 || asked >= 3) {
						t.Errorf("%s on %d brokers with %d replicas: %v", word, brokers, asked, err)
					}
					continue
				}
				if got := durability.Of(factsOf(c)); string(got) != word {
					t.Errorf("%s on %d brokers with %d replicas is %s: %+v", word, brokers, asked, got, c)
				}
				if asked != 0 && c.ReplicationFactor != asked || c.ReplicationFactor > max(brokers, asked) {
					t.Errorf("%s on %d brokers with %d replicas: %d", word, brokers, asked, c.ReplicationFactor)
				}
			}
		}
	}
	var unknown *durability.UnknownError
	if _, err := durability.Choose("custom", 3, 0); !errors.As(err, &unknown) {
		t.Errorf("custom can be chosen: %v", err)
	}
}

func facts(factor, minimum int, flush int64, unclean bool) durability.Facts {
	return durability.Facts{
		ReplicationFactor: factor, MinInsyncReplicas: minimum, FlushMessages: flush, UncleanElection: unclean,
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		facts durability.Facts
		want  durability.Contract
		says  string
	}{
		{facts(3, 2, 1, false), durability.Strict, "2 of 3 at least, have it on their disks: it survives the loss of any one broker"},
		{facts(5, 3, 1, false), durability.Strict, "any 2 brokers"},
		{facts(3, 2, 1000, false), durability.Balanced, "in memory"},
		{facts(2, 1, 1000, false), durability.Relaxed, "acks=1"},
		{facts(1, 1, 1000, false), durability.Relaxed, "acks=1"},
		{facts(1, 1, 1, false), durability.Custom, "one replica"},
		{facts(3, 3, 1, false), durability.Custom, "3 of 3"},
		{facts(3, 1, 1, false), durability.Custom, "1 of 3"},
		{facts(3, 2, 1, true), durability.Custom, "may lead"},
		{facts(3, 2, 0, false), durability.Custom, ""},
		{facts(1, 2, 1, false), durability.Custom, "acks=all is always refused"},
		{facts(3, 4, 1, true), durability.Custom, "may lead"},
	} {
		if got := durability.Of(c.facts); got != c.want {
			t.Errorf("%+v is %s, want %s", c.facts, got, c.want)
		}
		if got := durability.Explain(c.facts); !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q does not say %q", c.facts, got, c.says)
		}
	}
}
