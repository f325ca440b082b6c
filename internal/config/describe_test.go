package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/config"
)

// show writes an entry as one line: value, source, and the synonyms in order.
func show(e *config.Entry) string {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", text(e.Value), e.Source)
	for _, s := range e.Synonyms {
		fmt.Fprintf(&b, " %s=%s@%d", s.Name, text(s.Value), s.Source)
	}
	return b.String()
}

func find(t *testing.T, entries []config.Entry, name string) *config.Entry {
	t.Helper()
	for i := range entries {
		if entries[i].Option.Name == name {
			return &entries[i]
		}
	}
	t.Fatalf("%s is not described", name)
	return nil
}

func TestDescribeTopic(t *testing.T) {
	type values = map[string]string
	for _, c := range []struct {
		name    string
		sources config.Sources
		own     values
		option  string
		want    string
	}{
		{
			"all defaults",
			config.Sources{},
			nil, "retention.ms",
			"604800000 5 log.retention.hours=168@5",
		},
		{
			"own value",
			config.Sources{},
			values{"retention.ms": "9"},
			"retention.ms",
			"9 1 retention.ms=9@1 log.retention.hours=168@5",
		},
		{
			"static minutes",
			config.Sources{Static: values{"log.retention.minutes": "2"}},
			nil,
			"retention.ms", "120000 4 log.retention.minutes=2@4 log.retention.hours=168@5",
		},
		{
			"every layer",
			config.Sources{
				Static:         values{"message.max.bytes": "1"},
				ClusterDynamic: values{"message.max.bytes": "2"},
				BrokerDynamic:  values{"message.max.bytes": "3"},
			},
			values{"max.message.bytes": "4"},
			"max.message.bytes",
			"4 1 max.message.bytes=4@1 message.max.bytes=3@2 message.max.bytes=2@3 " +
				"message.max.bytes=1@4 message.max.bytes=1048588@5",
		},
		{
			"no synonym", config.Sources{}, nil, "remote.storage.enable", "false 5",
		},
	} {
		got := show(find(t, c.sources.DescribeTopic(c.own), c.option))
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestDescribeBroker(t *testing.T) {
	sources := config.Sources{
		Static:         map[string]string{"log.retention.minutes": "2", "broker.rack": "r1"},
		ClusterDynamic: map[string]string{"fetch.max.bytes": "2048"},
	}
	all := sources.DescribeBroker()
	for name, want := range map[string]string{
		"log.retention.ms":      "null 5 log.retention.minutes=2@4 log.retention.hours=168@5",
		"log.retention.minutes": "2 4 log.retention.minutes=2@4 log.retention.hours=168@5",
		"log.retention.hours":   "168 5 log.retention.hours=168@5",
		"fetch.max.bytes":       "2048 3 fetch.max.bytes=2048@3 fetch.max.bytes=57671680@5",
		"broker.rack":           "r1 4 broker.rack=r1@4",
		"advertised.listeners":  "null 5",
	} {
		if got := show(find(t, all, name)); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	for name, want := range map[string]bool{"node.id": true, "fetch.max.bytes": false} {
		if got := find(t, all, name).ReadOnly; got != want {
			t.Errorf("%s read-only is %v", name, got)
		}
	}
	cluster := sources.DescribeCluster()
	if len(cluster) != 1 || show(&cluster[0]) != "2048 3 fetch.max.bytes=2048@3" {
		t.Errorf("values for all brokers: %v", cluster)
	}
}

// Every option says what it does, in sentences.
func TestEveryOptionIsDocumented(t *testing.T) {
	for _, scope := range []config.Scope{config.BrokerScope, config.TopicScope} {
		for o := range config.Options(scope) {
			if !strings.HasSuffix(o.Doc, ".") || len(o.Doc) < 20 {
				t.Errorf("%s: %q", o.Name, o.Doc)
			}
			if o.Stored && !strings.Contains(o.Doc, "Kept and shown without effect") &&
				!strings.Contains(o.Doc, "of several replicas") {
				t.Errorf("%s is kept without effect and does not say so: %q", o.Name, o.Doc)
			}
		}
	}
}
