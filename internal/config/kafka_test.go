package config_test

import (
	"bufio"
	_ "embed"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/config"
)

// kafkaOptions is what Kafka 4.4.0 itself says of its options: scope, name, type
// and default, printed from KafkaConfig.configDef() and LogConfig.configDefCopy().
//
//go:embed testdata/kafka-4.4.0.tsv
var kafkaOptions string

type kafkaOption struct{ kind, value string }

func readKafkaOptions(t *testing.T) map[config.Scope]map[string]kafkaOption {
	t.Helper()
	out := map[config.Scope]map[string]kafkaOption{
		config.BrokerScope: {}, config.TopicScope: {},
	}
	lines := bufio.NewScanner(strings.NewReader(kafkaOptions))
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		scope := config.BrokerScope
		if f[0] == "topic" {
			scope = config.TopicScope
		}
		out[scope][f[1]] = kafkaOption{strings.ToLower(f[2]), strings.Trim(f[3], "[]")}
	}
	return out
}

// differingOptions returns the options whose defaults differ from Kafka's, as
// docs/configuration.md lists them.
func differingOptions(t *testing.T) map[string]bool {
	t.Helper()
	_, table, found := strings.Cut(config.Page(), "\n## Where the defaults differ from Kafka's\n")
	if !found {
		t.Fatal("the page does not say where defaults differ")
	}
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		for name := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), ", ") {
			listed[name] = true
		}
	}
	return listed
}

// Every option of Kafka's that is here has Kafka's type and default, but for those
// that docs/configuration.md lists, and it lists no other.
func TestOptionsAreKafkas(t *testing.T) {
	listed := differingOptions(t)
	ours := map[string]bool{
		"max.partitions.per.broker": true, "queued.max.response.bytes": true,
		"http.max.requests": true, "http.max.sessions": true, "http.body.timeout.ms": true,
		"idempotency.window.ms": true, "idempotency.max.keys": true, "idempotency.max.keys.per.broker": true,
	}
	kafka := readKafkaOptions(t)
	// Kafka has these too, among the options that can't be set at a start.
	ours["leader.replication.throttled.rate"], ours["follower.replication.throttled.rate"] = true, true
	ours["replica.alter.log.dirs.io.max.bytes.per.second"] = true
	ours["metrics.partition.series.max"], ours["metrics.group.series.max"] = true, true
	for scope, theirs := range kafka {
		for o := range config.Options(scope) {
			k, ok := theirs[o.Name]
			if !ok {
				if !ours[o.Name] {
					t.Errorf("%s %s is not Kafka's", o.Scope, o.Name)
				}
				continue
			}
			if k.kind != o.Type.String() {
				t.Errorf("%s is a %s, Kafka's a %s", o.Name, o.Type, k.kind)
			}
			value := o.Default
			if o.NoDefault {
				value = "null"
			}
			name := o.Name
			if o.Of != "" {
				name = o.Of
			}
			if differs := value != k.value; differs != listed[name] {
				t.Errorf("%s %s defaults to %q, Kafka's to %q: is it in the page's table of what differs? %v",
					o.Scope, o.Name, value, k.value, listed[name])
			}
		}
	}
}

// No topic option of Kafka's is unknown here: each is there, or refused with a
// reason.
func TestEveryTopicOptionOfKafkaIsKnown(t *testing.T) {
	for name := range readKafkaOptions(t)[config.TopicScope] {
		if err := config.Known(config.TopicScope, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The verdicts are those of Kafka's LogConfig.validate, noted from a run of 4.4.0,
// but for the values that are refused here on purpose.
func TestVerdictsAreKafkas(t *testing.T) {
	for _, c := range []struct {
		name, value string
		valid       bool
	}{
		{"cleanup.policy", "", true},
		{"cleanup.policy", "compact,compact", true},
		{"cleanup.policy", "compact, delete", true},
		{"cleanup.policy", "delete,", false},
		{"cleanup.policy", "none", false},
		{"retention.ms", " 5 ", true},
		{"retention.ms", "+5", true},
		{"retention.ms", "0x10", false},
		{"retention.ms", "", false},
		{"retention.ms", "-2", false},
		{"retention.bytes", "-7", true},
		{"min.cleanable.dirty.ratio", "1e-1", true},
		{"min.cleanable.dirty.ratio", "1.01", false},
		{"preallocate", "TRUE", true},
		{"preallocate", "yes", false},
		{"compression.type", "producer", true},
		{"compression.type", "none", false},
		{"compression.gzip.level", "0", false},
		{"compression.gzip.level", "-1", true},
		{"compression.gzip.level", "9", true},
		{"leader.replication.throttled.replicas", "*", true},
		{"leader.replication.throttled.replicas", "0:1, 1:2", true},
		{"leader.replication.throttled.replicas", "", true},
		{"leader.replication.throttled.replicas", "x", false},
		{"message.timestamp.type", "LogAppendTime", true},
		{"message.timestamp.type", "createtime", false},
		{"segment.bytes", "1048575", false},
		{"segment.bytes", "2147483648", false},
		{"remote.copy.lag.ms", "-1", true},
		{"local.retention.ms", "-3", false},
		{"foo", "bar", false},

		// Refused here, not by Kafka.
		{"compression.type", "gzip", false},
		{"remote.storage.enable", "true", false},
		{"remote.log.copy.disable", "true", false},
	} {
		err := config.Validate(config.TopicScope, c.name, c.value)
		if (err == nil) != c.valid {
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		}
	}
}
