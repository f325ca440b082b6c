package controller_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// testingT is *testing.T or *rapid.T.
type testingT interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// world is a controller with everything it ever decided.
type world struct {
	testingT
	*controller.State
	options controller.Options
	log     []metadata.Record
	// unseen are the brokers that were not heard of since the controller leads.
	unseen map[kafka.BrokerID]bool
}

// newWorld founds a cluster with brokers 1 to n.
func newWorld(t testingT, n int, static map[string]string) *world {
	t.Helper()
	drawn := uint16(0)
	options := controller.Options{Self: 1, Static: static, NewTopicID: func() kafka.TopicID {
		drawn++
		return kafka.TopicID{0xaa, 14: byte(drawn >> 8), 15: byte(drawn)}
	}}
	w := &world{testingT: t, unseen: map[kafka.BrokerID]bool{}}
	options.Seen = func(id kafka.BrokerID) bool { return !w.unseen[id] }
	state, err := controller.New(options, new(metadata.Image))
	if err != nil {
		t.Fatal(err)
	}
	w.State, w.options = state, options
	_, records := w.FoundCluster("c")
	w.replay(records)
	for i := range n {
		w.register(int32(i+1), -1)
	}
	return w
}

func (w *world) replay(records []metadata.Record) {
	w.Helper()
	if _, err := w.Replay(records); err != nil {
		w.Fatal(err)
	}
	w.log = append(w.log, records...)
}

// registration is what a broker asks for when it starts.
func registration(id int32, previous int64) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.PreviousBrokerEpoch = id, "c", previous
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", fmt.Sprintf("host%d", id), 9092
	req.Listeners = append(req.Listeners, l)
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MaxSupportedVersion = controller.LevelFeature, metadata.CurrentLevel
	req.Features = append(req.Features, f)
	return req
}

// register starts a broker, which serves then, and returns its epoch.
func (w *world) register(id int32, previous int64) int64 {
	w.Helper()
	resp := w.start(registration(id, previous))
	if resp.ErrorCode != 0 {
		w.Fatalf("broker %d: %v", id, kafka.Code(resp.ErrorCode))
	}
	w.up(id)
	return resp.BrokerEpoch
}

// start registers a broker and replays what follows.
func (w *world) start(req *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	w.Helper()
	resp, records := w.RegisterBroker(req)
	w.replay(records)
	return resp
}

// up sends a heartbeat of a broker that serves.
func (w *world) up(id int32) *kmsg.BrokerHeartbeatResponse {
	w.Helper()
	return w.beat(id, func(*kmsg.BrokerHeartbeatRequest) {})
}

// beat sends a heartbeat and replays what follows.
func (w *world) beat(id int32, edit func(*kmsg.BrokerHeartbeatRequest)) *kmsg.BrokerHeartbeatResponse {
	w.Helper()
	b, _ := w.Image().Broker(kafka.BrokerID(id))
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = id, int64(b.Epoch)
	edit(req)
	quick := controller.IsRoutine(w.Image(), req)
	resp, records := w.Heartbeat(req)
	if quick != nil && (len(records) > 0 || quick.ErrorCode != resp.ErrorCode ||
		quick.IsFenced != resp.IsFenced || quick.IsCaughtUp != resp.IsCaughtUp || resp.ShouldShutdown) {
		w.Fatalf("a routine heartbeat of broker %d: %+v, decided %+v with %d records", id, quick, resp, len(records))
	}
	w.replay(records)
	return resp
}

// fence says that brokers have failed.
func (w *world) fence(ids ...kafka.BrokerID) {
	w.Helper()
	w.replay(w.FenceBrokers(ids))
}

// checkReplayLaw checks that what was decided, replayed from nothing, makes a
// state that decides alike.
func (w *world) checkReplayLaw() {
	w.Helper()
	again, err := controller.New(w.options, new(metadata.Image))
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range w.log {
		if _, err := again.Replay([]metadata.Record{r}); err != nil {
			w.Fatal(err)
		}
	}
	want := w.Image().AppendSnapshot(nil)
	if !bytes.Equal(again.Image().AppendSnapshot(nil), want) {
		w.Fatalf("replay gives\n%q\nwant\n%q", again.Image().AppendSnapshot(nil), want)
	}
	restored, err := controller.New(w.options, w.Image())
	if err != nil {
		w.Fatal(err)
	}
	probe := createRequest("a_b", "a.b", "new_name", "new.name2")
	for _, s := range []*controller.State{again, restored} {
		got, _ := s.CreateTopics(probe)
		wanted, _ := w.CreateTopics(probe)
		for i := range got.Topics {
			if got.Topics[i].ErrorCode != wanted.Topics[i].ErrorCode {
				w.Fatalf("%s: %d after a replay, %d before", got.Topics[i].Topic, got.Topics[i].ErrorCode,
					wanted.Topics[i].ErrorCode)
			}
		}
	}
}

// createRequest asks for topics with one partition and one replica each.
func createRequest(names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	for _, name := range names {
		req.Topics = append(req.Topics, topicOf(name, 1, 1))
	}
	return req
}

func createRequestOf(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := createRequest()
	req.Topics = topics
	return req
}

func topicOf(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for _, c := range configs {
		option, value, _ := strings.Cut(c, "=")
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: option, Value: &value})
	}
	return t
}

// create creates topics that must not be refused.
func (w *world) create(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsResponse {
	w.Helper()
	req := createRequest()
	req.Topics = topics
	resp, records := w.CreateTopics(req)
	for _, t := range resp.Topics {
		if t.ErrorCode != 0 {
			w.Fatalf("topic %s: %v: %s", t.Topic, kafka.Code(t.ErrorCode), *t.ErrorMessage)
		}
	}
	w.replay(records)
	return resp
}

// expect checks a code and a part of its message.
func expect(t *testing.T, what string, code int16, message *string, want kafka.Code, part string) {
	t.Helper()
	text := ""
	if message != nil {
		text = *message
	}
	if kafka.Code(code) != want || !strings.Contains(text, part) {
		t.Errorf("%s: %v %q\nwant %v ...%s...", what, kafka.Code(code), text, want, part)
	}
	if want != kafka.ErrNone && len(text) < 20 {
		t.Errorf("%s: the refusal does not explain itself: %q", what, text)
	}
}
