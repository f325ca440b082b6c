package config_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/config"
)

func TestDefaultsAreValid(t *testing.T) {
	b := config.Default()
	topic := b.Topic
	if topic.RetentionMs != 7*24*3600*1000 || topic.FlushMessages != 1 || !topic.CleanupDelete {
		t.Errorf("defaults of topics: %+v", topic)
	}
	want := []config.Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}}
	if diff := cmp.Diff(want, b.Listeners); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
	if b.OffsetsRetention != 7*24*time.Hour {
		t.Errorf("offsets are kept %v, want a week", b.OffsetsRetention)
	}
}

// A layer further down wins, and of several synonyms the first that is set.
func TestLayersAndSynonyms(t *testing.T) {
	type layers = config.Sources
	type values = map[string]string
	for _, c := range []struct {
		name    string
		sources layers
		want    int64
	}{
		{"default", layers{}, 168 * 3600 * 1000},
		{"hours", layers{Static: values{"log.retention.hours": "2"}}, 2 * 3600 * 1000},
		{
			"minutes over hours",
			layers{Static: values{"log.retention.hours": "2", "log.retention.minutes": "3"}},
			3 * 60 * 1000,
		},
		{
			"ms over minutes",
			layers{Static: values{"log.retention.minutes": "3", "log.retention.ms": "4"}},
			4,
		},
		{"no limit in hours", layers{Static: values{"log.retention.hours": "-1"}}, -1},
		{"too many hours", layers{Static: values{"log.retention.hours": "2147483647"}}, 2147483647 * 3600 * 1000},
		{
			"cluster over static",
			layers{Static: values{"log.retention.ms": "1"}, ClusterDynamic: values{"log.retention.ms": "2"}},
			2,
		},
		{
			"broker over cluster", layers{
				ClusterDynamic: values{"log.retention.ms": "2"},
				BrokerDynamic:  values{"log.retention.ms": "3"},
			}, 3,
		},
	} {
		b, err := c.sources.Broker()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := config.ResolveTopic(b, nil).RetentionMs; got != c.want {
			t.Errorf("%s: retention.ms is %d, want %d", c.name, got, c.want)
		}
		if got := config.ResolveTopic(b, values{"retention.ms": "9"}).RetentionMs; got != 9 {
			t.Errorf("%s: the topic's own value does not win: %d", c.name, got)
		}
	}
}

// Resolving a topic changes nothing that other topics share.
func TestResolveTopicLeavesTheDefaults(t *testing.T) {
	b := config.Default()
	before := b.Topic
	topic := config.ResolveTopic(b, map[string]string{
		"cleanup.policy": "compact", "flush.messages": "7", "message.timestamp.type": "LogAppendTime",
		"unknown.option": "1", "segment.bytes": "no number",
	})
	if !topic.CleanupCompact || topic.CleanupDelete || topic.FlushMessages != 7 || !topic.LogAppendTime() {
		t.Errorf("own values are not there: %+v", topic)
	}
	if topic.SegmentBytes != before.SegmentBytes {
		t.Errorf("a value that is not valid changed the default: %d", topic.SegmentBytes)
	}
	if diff := cmp.Diff(before, b.Topic, cmp.AllowUnexported(config.Topic{})); diff != "" {
		t.Errorf("the defaults changed:\n%s", diff)
	}
}

func TestDurations(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"-1":                  -time.Millisecond,
		"0":                   0,
		"1500":                1500 * time.Millisecond,
		"9223372036854775807": math.MaxInt64,
	} {
		b, err := config.Sources{Static: map[string]string{"connections.max.idle.ms": value}}.Broker()
		if err != nil {
			t.Errorf("%s: %v", value, err)
		} else if b.ConnectionsMaxIdle != want {
			t.Errorf("%s ms: %v, want %v", value, b.ConnectionsMaxIdle, want)
		}
	}
}

// What is wrong is all told at once, and what binds options together is checked.
func TestBrokerErrors(t *testing.T) {
	for _, c := range []struct {
		values map[string]string
		want   []string
	}{
		{
			map[string]string{"node.id": "-3", "num.partitions": "many", "nod.id": "4"},
			[]string{
				`invalid value "-3" for node.id: want at least 0`,
				`invalid value "many" for num.partitions: want a whole number of at most 32 bits`,
				`unknown broker option "nod.id": did you mean node.id?`,
			},
		},
		{
			map[string]string{"queued.max.request.bytes": "2000000"},
			[]string{"queued.max.request.bytes (2000000) is below socket.request.max.bytes (104857600)"},
		},
		{
			map[string]string{"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
			[]string{"group.min.session.timeout.ms (9) is above group.max.session.timeout.ms (8)"},
		},
		{
			map[string]string{"broker.session.timeout.ms": "499"},
			[]string{"broker.session.timeout.ms (499) is below twice broker.heartbeat.interval.ms (250)"},
		},
		{
			map[string]string{"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "500"},
			[]string{"replica.fetch.wait.max.ms (500) is not below replica.lag.time.max.ms (500)"},
		},
		{
			map[string]string{"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
			[]string{`invalid value "9" for min.compaction.lag.ms: it may not exceed max.compaction.lag.ms, which is 8`},
		},
		{map[string]string{"cordoned.log.dirs": "*"}, []string{"it is set while this one runs"}},
		{map[string]string{"log.dirs": "a,b"}, []string{"want exactly one directory"}},
		{map[string]string{"log.retention.hours": "-2"}, []string{`for log.retention.hours: want at least -1`}},
		{map[string]string{"log.retention.ms": "x"}, []string{`invalid value "x" for log.retention.ms`}},
	} {
		_, err := config.Sources{Static: c.values}.Broker()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v\nwant %s", c.values, err, want)
			}
		}
		if lines := strings.Count(err.Error(), "\n") + 1; lines != len(c.want) {
			t.Errorf("%v: %d errors, want %d: %v", c.values, lines, len(c.want), err)
		}
	}
}

func TestUnknownOptions(t *testing.T) {
	for _, c := range []struct {
		scope      config.Scope
		name, want string
	}{
		{config.TopicScope, "retension.ms", "did you mean retention.ms?"},
		{config.TopicScope, "fetch.max.bytes", "it is an option of a broker"},
		{config.BrokerScope, "retention.ms", "it is an option of a topic"},
		{config.TopicScope, "message.format.version", "Kafka 4 removed it"},
		{config.BrokerScope, "num.io.threads", "there are no thread pools"},
		{config.BrokerScope, "ssl.keystore.location", "TLS"},
		{config.BrokerScope, "group.share.enable", "share groups are not available"},
		{config.TopicScope, strings.Repeat("x", 500), "see docs/configuration.md"},
		{config.TopicScope, "", "see docs/configuration.md"},
	} {
		err := config.Known(c.scope, c.name)
		var wrong *config.ValueError
		if !errors.As(err, &wrong) || !wrong.Unknown || !strings.Contains(wrong.Reason, c.want) {
			t.Errorf("%.30s: %v, want %s", c.name, err, c.want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.30s: the message repeats %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestListeners(t *testing.T) {
	for _, c := range []struct {
		option, value string
		want          []config.Listener // Nil for an error.
	}{
		{"listeners", "plaintext://:9092", []config.Listener{{Name: "PLAINTEXT", Port: 9092}}},
		{"listeners", "A://h:1, B://[::1]:2", []config.Listener{{"A", "h", 1}, {"B", "::1", 2}}},
		{"listeners", "A://h:0", []config.Listener{{"A", "h", 0}}},
		{"listeners", "", nil},
		{"listeners", "A://h:1,A://h:2", nil},
		{"listeners", "h:1", nil},
		{"listeners", "://h:1", nil},
		{"listeners", "A://h", nil},
		{"listeners", "A://h:65536", nil},
		{"listeners", "A://h:-1", nil},
		{"listeners", "A://::1:9092", nil},
		{"listeners", "A://[::1:9092", nil},
		{"listeners", "A://[127.0.0.1]:9092", nil},
		{"advertised.listeners", "A://kafka:9092", []config.Listener{{"A", "kafka", 9092}}},
		{"advertised.listeners", "A://:9092", nil},
		{"advertised.listeners", "A://0.0.0.0:9092", nil},
		{"advertised.listeners", "A://[::]:9092", nil},
	} {
		b, err := config.Sources{Static: map[string]string{c.option: c.value}}.Broker()
		if (err == nil) != (c.want != nil) {
			t.Errorf("%s=%s: %v", c.option, c.value, err)
			continue
		}
		if err != nil {
			continue
		}
		got := b.Listeners
		if c.option == "advertised.listeners" {
			got = b.AdvertisedListeners
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", c.option, c.value, diff)
		}
		for _, l := range got {
			again, err := config.ParseListeners([]string{l.String()})
			if err != nil || again[0] != l {
				t.Errorf("%v written and read is %v, %v", l, again, err)
			}
		}
	}
}
