package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// wantTopics asks for the metadata of topics.
func wantTopics(version int16, allow bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, allow
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

// TestAutoCreation: a topic is created where both the broker and the client want
// it; a client of a version without that field wants it always.
func TestAutoCreation(t *testing.T) {
	for _, setting := range []string{"true", "false", ""} {
		w := newWorld(t)
		if setting != "" {
			w.settings["auto.create.topics.enable"] = setting
		}
		w.start()
		enabled := w.plane.BrokerConfig().AutoCreateTopicsEnable
		if setting != "" && enabled != (setting == "true") {
			t.Fatalf("auto.create.topics.enable=%s is %v", setting, enabled)
		}
		c := w.connect()
		for version := range int16(14) {
			for _, allow := range []bool{true, false} {
				name := fmt.Sprintf("wanted-%d-%v", version, allow)
				wish := allow || version < 4
				resp := c.ask(wantTopics(version, allow, name)).(*kmsg.MetadataResponse)
				got := kafka.Code(resp.Topics[0].ErrorCode)
				want := kafka.ErrUnknownTopicOrPartition
				if enabled && wish {
					want = kafka.ErrNone
				}
				if got != want || text(resp.Topics[0].Topic) != name {
					t.Errorf("enable=%q, version %d, allow %v: %s for %q, want %s",
						setting, version, allow, got, text(resp.Topics[0].Topic), want)
				}
				if there := w.plane.Image().Topic(name) != nil; there != (enabled && wish) {
					t.Errorf("enable=%q, version %d, allow %v: created %v", setting, version, allow, there)
				}
			}
		}
	}
}

// TestAutoCreationHasLimits: names that are no names, and those of others, are not
// created.
func TestAutoCreationHasLimits(t *testing.T) {
	w := startWorld(t)
	c := w.connect()
	for name, want := range map[string]kafka.Code{
		"":                       kafka.ErrInvalidTopicException,
		".":                      kafka.ErrInvalidTopicException,
		"a topic":                kafka.ErrInvalidTopicException,
		strings.Repeat("x", 250): kafka.ErrInvalidTopicException,
		"__consumer_offsets":     kafka.ErrNone,
		"__transaction_state":    kafka.ErrUnknownTopicOrPartition,
	} {
		resp := c.ask(wantTopics(9, true, name)).(*kmsg.MetadataResponse)
		if got := kafka.Code(resp.Topics[0].ErrorCode); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestAutoCreationOfMany: one request creates so many topics at most, and the
// client that asks again gets the rest.
func TestAutoCreationOfMany(t *testing.T) {
	w := startWorld(t)
	c := w.connect()
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprint("many-", i))
	}
	for _, want := range []int{100, 200, 250} {
		resp := c.ask(wantTopics(9, true, names...)).(*kmsg.MetadataResponse)
		created := 0
		for _, rt := range resp.Topics {
			switch kafka.Code(rt.ErrorCode) {
			case kafka.ErrNone:
				created++
			case kafka.ErrLeaderNotAvailable:
			default:
				t.Errorf("%s: %s", text(rt.Topic), kafka.Code(rt.ErrorCode))
			}
		}
		if created != want || len(resp.Topics) != len(names) {
			t.Errorf("%d topics of %d are there, want %d", created, len(resp.Topics), want)
		}
	}
	if log := w.log.String(); !strings.Contains(log, "auto.create.topics.enable=false") {
		t.Errorf("logged %q", log)
	}
}
