package config_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/strandline/strandline/internal/config"
)

// Whatever the value: no panic, an error that names the option, and what is valid
// resolves.
func FuzzValue(f *testing.F) {
	var names []string
	for o := range config.Options(config.TopicScope) {
		names = append(names, o.Name)
		f.Add(uint8(len(names)-1), o.Default)
	}
	for _, v := range []string{"", "-1", "1e308", "*", "0:1,1:2", "compact,delete", "TRUE", "\x00", "9223372036854775808"} {
		f.Add(uint8(len(v)), v)
	}
	b := config.Default()
	f.Fuzz(func(t *testing.T, i uint8, value string) {
		name := names[int(i)%len(names)]
		own := map[string]string{name: value}
		err := config.ValidateTopic(b, own)
		var wrong *config.ValueError
		if err != nil && (!errors.As(err, &wrong) || wrong.Name != name && wrong.Name != "min.compaction.lag.ms") {
			t.Fatalf("%s=%q: %v", name, value, err)
		}
		topic := config.ResolveTopic(b, own)
		if err == nil && topic.SegmentBytes < 1<<20 {
			t.Fatalf("%s=%q gives segments of %d bytes", name, value, topic.SegmentBytes)
		}
	})
}

// Whatever is given at start: no panic, and a broker or an error.
func FuzzBroker(f *testing.F) {
	f.Add("listeners", "PLAINTEXT://[::1]:9092", "node.id", "7")
	f.Add("advertised.listeners", "A://x:1,B://y:2", "log.dirs", "/data")
	f.Add("log.retention.hours", "2147483647", "log.roll.hours", "1")
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string) {
		b, err := config.Sources{Static: map[string]string{name: value, name2: value2}}.Broker()
		if (b == nil) == (err == nil) {
			t.Fatal("want a broker or an error")
		}
		if err == nil && (len(b.LogDirs) != 1 || len(b.Listeners) == 0 || b.NodeID < 0) {
			t.Fatalf("not a valid broker: %+v", b)
		}
	})
}

// The names of the table are in order, so that pages and answers are.
func TestOptionsAreSorted(t *testing.T) {
	for _, scope := range []config.Scope{config.BrokerScope, config.TopicScope} {
		var names []string
		for o := range config.Options(scope) {
			names = append(names, o.Name)
		}
		if !slices.IsSorted(names) {
			t.Errorf("%v options are not in order", scope)
		}
		unique := map[string]bool{}
		for _, n := range names {
			unique[n] = true
		}
		if len(slices.Collect(maps.Keys(unique))) != len(names) {
			t.Errorf("a %v option is there twice", scope)
		}
	}
}
