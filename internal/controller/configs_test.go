package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// incremental makes a request of one resource from texts: a=1 sets, a+=1 appends,
// a-=1 subtracts, -a deletes, a! sets null.
func incremental(kind kmsg.ConfigResourceType, name string, changes ...string) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, text := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		option, value, set := strings.Cut(text, "=")
		c.Name, c.Value = strings.TrimRight(option, "+-!"), &value
		switch {
		case !set && strings.HasPrefix(text, "-"):
			c.Name, c.Value, c.Op = text[1:], nil, kmsg.IncrementalAlterConfigOpDelete
		case !set:
			c.Value = nil
		case strings.HasSuffix(option, "+"):
			c.Op = kmsg.IncrementalAlterConfigOpAppend
		case strings.HasSuffix(option, "-"):
			c.Op = kmsg.IncrementalAlterConfigOpSubtract
		}
		r.Configs = append(r.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	return req
}

const (
	topic  = kmsg.ConfigResourceTypeTopic
	broker = kmsg.ConfigResourceTypeBroker
)

func TestIncrementalAlterConfigs(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"log.cleanup.policy": "delete"})
	w.create(topicOf("a", 1, 1))
	type change = []string
	for _, c := range []struct {
		kind    kmsg.ConfigResourceType
		name    string
		changes change
		want    kafka.Code
		part    string
		after   map[string]string // The resource's own values; nil for those before.
	}{
		{topic, "a", change{"retention.ms=5", "segment.ms= 7"}, 0, "", map[string]string{"retention.ms": "5", "segment.ms": "7"}},
		{topic, "a", change{"-segment.ms"}, 0, "", map[string]string{"retention.ms": "5"}},
		{topic, "a", change{"-segment.ms"}, 0, "", map[string]string{"retention.ms": "5"}},
		{topic, "a", change{"-retention.ms", "cleanup.policy+=compact"}, 0, "", map[string]string{"cleanup.policy": "delete,compact"}},
		{topic, "a", change{"cleanup.policy+=compact"}, 0, "", map[string]string{"cleanup.policy": "delete,compact"}},
		{topic, "a", change{"cleanup.policy-=delete, other"}, 0, "", map[string]string{"cleanup.policy": "compact"}},
		{topic, "a", change{"cleanup.policy-=compact"}, 0, "", map[string]string{"cleanup.policy": ""}},
		{topic, "a", change{"cleanup.policy+=shred"}, kafka.ErrInvalidConfig, "any of compact, delete", nil},
		{topic, "a", change{"retention.ms+=1"}, kafka.ErrInvalidConfig, "is a long", nil},
		{topic, "a", change{"nonsense+=1"}, kafka.ErrInvalidConfig, "unknown topic option", nil},
		{topic, "a", change{"retention.ms=x"}, kafka.ErrInvalidConfig, "whole number", nil},
		{topic, "a", change{"-nonsense"}, kafka.ErrInvalidConfig, "unknown topic option", nil},
		{topic, "a", change{"retention.ms!"}, kafka.ErrInvalidRequest, "Null value", nil},
		{topic, "a", change{"retention.ms=1", "-retention.ms"}, kafka.ErrInvalidRequest, "twice", nil},
		{
			topic, "a",
			change{"min.compaction.lag.ms=5", "max.compaction.lag.ms=4"},
			kafka.ErrInvalidConfig,
			"may not exceed", nil,
		},
		{topic, "b", change{"retention.ms=1"}, kafka.ErrUnknownTopicOrPartition, "no topic", nil},
		{topic, "", change{"retention.ms=1"}, kafka.ErrInvalidTopicException, "empty", nil},
		{broker, "1", change{"fetch.max.bytes=2048"}, 0, "", map[string]string{"fetch.max.bytes": "2048"}},
		{broker, "", change{"log.retention.ms=9"}, 0, "", map[string]string{"log.retention.ms": "9"}},
		{
			// What kafka-reassign-partitions.sh --verify sends when all has moved.
			broker, "1", change{
				"-leader.replication.throttled.rate", "-follower.replication.throttled.rate",
				"-replica.alter.log.dirs.io.max.bytes.per.second",
			}, 0, "", map[string]string{"fetch.max.bytes": "2048"},
		},
		{broker, "", change{"cordoned.log.dirs=*"}, kafka.ErrInvalidRequest, "one broker at a time", nil},
		{broker, "1", change{"cordoned.log.dirs=/a"}, kafka.ErrInvalidConfig, "want any of *", nil},
		{broker, "1", change{"node.id=2"}, kafka.ErrInvalidRequest, "Cannot update these configs dynamically: node.id", nil},
		{broker, "1", change{"fetch.max.bytes=1"}, kafka.ErrInvalidConfig, "want at least 1024", nil},
		{broker, "1", change{"num.io.threads=1"}, kafka.ErrInvalidConfig, "no thread pools", nil},
		{
			broker, "",
			change{"log.cleaner.max.compaction.lag.ms=1", "log.cleaner.min.compaction.lag.ms=2"},
			kafka.ErrInvalidConfig, "may not exceed", nil,
		},
		{broker, "2", change{"fetch.max.bytes=2048"}, kafka.ErrInvalidRequest, "there is no broker 2", nil},
		{broker, "01", change{"fetch.max.bytes=2048"}, kafka.ErrInvalidRequest, "is no number", nil},
		{kmsg.ConfigResourceTypeGroupConfig, "g", change{"a=1"}, kafka.ErrInvalidRequest, "nothing of type", nil},
	} {
		what := fmt.Sprintf("%v %s: %v", c.kind, c.name, c.changes)
		r := metadata.Resource{Type: metadata.ResourceType(c.kind), Name: c.name}
		before := w.Image().Config(r)
		req := incremental(c.kind, c.name, c.changes...)
		req.ValidateOnly = true
		if _, records := w.IncrementalAlterConfigs(req); records != nil {
			t.Errorf("%s: a dry run has records", what)
		}
		req.ValidateOnly = false
		resp, records := w.IncrementalAlterConfigs(req)
		expect(t, what, resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage, c.want, c.part)
		w.replay(records)
		if c.after == nil {
			c.after = before
		}
		if diff := cmp.Diff(c.after, w.Image().Config(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	twice := incremental(topic, "a", "retention.ms=1")
	twice.Resources = append(twice.Resources, twice.Resources[0])
	resp, _ := w.IncrementalAlterConfigs(twice)
	expect(t, "a resource twice", resp.Resources[1].ErrorCode, resp.Resources[1].ErrorMessage,
		kafka.ErrInvalidRequest, "twice")
	odd := incremental(topic, "a", "retention.ms=1")
	odd.Resources[0].Configs[0].Op = 9
	resp, _ = w.IncrementalAlterConfigs(odd)
	expect(t, "an odd operation", resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage,
		kafka.ErrInvalidRequest, "no operation 9")
	w.checkReplayLaw()
}

// The older request replaces all that a resource has of its own.
func TestAlterConfigs(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.create(topicOf("a", 1, 1, "retention.ms=1", "segment.ms=2"))
	alter := func(values ...string) (*kmsg.AlterConfigsResponse, []metadata.Record) {
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = topic, "a"
		for _, text := range values {
			name, value, set := strings.Cut(text, "=")
			c := kmsg.AlterConfigsRequestResourceConfig{Name: name}
			if set {
				c.Value = &value
			}
			r.Configs = append(r.Configs, c)
		}
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = append(req.Resources, r)
		return w.AlterConfigs(req)
	}
	_, records := alter("segment.ms=2", "retention.bytes=3")
	w.replay(records)
	want := map[string]string{"segment.ms": "2", "retention.bytes": "3"}
	if diff := cmp.Diff(want, w.Image().Topic("a").Config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, records := alter("segment.ms=2", "retention.bytes=3"); records != nil {
		t.Error("no change has records")
	}
	for _, c := range []struct {
		value string
		want  kafka.Code
		part  string
	}{
		{"retention.ms", kafka.ErrInvalidRequest, "Null value"},
		{"retention.ms=x", kafka.ErrInvalidConfig, "whole number"},
	} {
		resp, records := alter(c.value)
		expect(t, c.value, resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage, c.want, c.part)
		w.replay(records)
	}
	resp, _ := alter("segment.ms=1", "segment.ms=1")
	expect(t, "a value twice", resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage,
		kafka.ErrInvalidRequest, "twice")
	_, records = alter()
	w.replay(records)
	if own := w.Image().Topic("a").Config; own != nil {
		t.Errorf("left: %v", own)
	}
	w.checkReplayLaw()
}

func TestDescribeConfigs(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"log.retention.minutes": "2"})
	w.create(topicOf("a", 1, 1, "segment.ms=7"))
	_, records := w.IncrementalAlterConfigs(incremental(broker, "", "fetch.max.bytes=2048"))
	w.replay(records)
	describe := func(kind kmsg.ConfigResourceType, name string, options ...string) kmsg.DescribeConfigsResponseResource {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, options
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		req.Resources = append(req.Resources, r)
		return controller.DescribeConfigs(w.options, w.Image(), req).Resources[0]
	}
	for _, c := range []struct {
		kind                kmsg.ConfigResourceType
		name, option, value string
		source              kmsg.ConfigSource
		readOnly            bool
	}{
		{topic, "a", "segment.ms", "7", kmsg.ConfigSourceDynamicTopicConfig, false},
		{topic, "a", "retention.ms", "120000", kmsg.ConfigSourceStaticBrokerConfig, false},
		{topic, "a", "flush.messages", "1", kmsg.ConfigSourceDefaultConfig, false},
		{broker, "1", "fetch.max.bytes", "2048", kmsg.ConfigSourceDynamicDefaultBrokerConfig, false},
		{broker, "1", "node.id", "1", kmsg.ConfigSourceDefaultConfig, true},
		{broker, "", "fetch.max.bytes", "2048", kmsg.ConfigSourceDynamicDefaultBrokerConfig, false},
	} {
		got := describe(c.kind, c.name, c.option)
		if got.ErrorCode != 0 || len(got.Configs) != 1 {
			t.Errorf("%s %s: %+v", c.name, c.option, got)
			continue
		}
		e := got.Configs[0]
		if e.Name != c.option || *e.Value != c.value || e.Source != c.source || e.ReadOnly != c.readOnly ||
			e.IsDefault != (c.source == kmsg.ConfigSourceDefaultConfig) {
			t.Errorf("%s %s: %+v", c.name, c.option, e)
		}
		if len(e.ConfigSynonyms) == 0 || e.Documentation == nil || e.ConfigType == 0 {
			t.Errorf("%s %s lacks synonyms, documentation or type: %+v", c.name, c.option, e)
		}
	}
	if n := len(describe(topic, "a").Configs); n < 35 {
		t.Errorf("%d options of a topic", n)
	}
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want kafka.Code
		part string
	}{
		{topic, "b", kafka.ErrUnknownTopicOrPartition, "no topic"},
		{topic, "a/b", kafka.ErrInvalidTopicException, "character"},
		{broker, "2", kafka.ErrInvalidRequest, "expected 1"},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", kafka.ErrInvalidRequest, "nothing of type"},
	} {
		got := describe(c.kind, c.name)
		expect(t, c.name, got.ErrorCode, got.ErrorMessage, c.want, c.part)
	}
}
