package controller_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Whoever is not the first is fenced until it says that it knows the metadata.
func TestRegistrationIsFenced(t *testing.T) {
	w := newWorld(t, 1, nil)
	if b, _ := w.Image().Broker(1); b.Fenced {
		t.Error("the first broker, which is the controller, is fenced")
	}
	w.start(registration(2, -1))
	if b, _ := w.Image().Broker(2); !b.Fenced || b.MaxLevel != metadata.CurrentLevel {
		t.Errorf("registered: %+v", b)
	}
	resp := w.beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true })
	if !resp.IsFenced || resp.IsCaughtUp || resp.ErrorCode != 0 {
		t.Errorf("not caught up: %+v", resp)
	}
	if resp := w.up(2); resp.IsFenced || !resp.IsCaughtUp {
		t.Errorf("caught up: %+v", resp)
	}
	w.create(topicOf("a", 1, 2))
	if resp := w.beat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true }); !resp.IsFenced {
		t.Errorf("wants to be fenced: %+v", resp)
	}
	if got := describe(w.Image().Topic("a").Partitions[0]); got != "2 [2] 1" {
		t.Errorf("fenced by its own wish: %s", got)
	}
	if resp := w.beat(9, func(*kmsg.BrokerHeartbeatRequest) {}); kafka.Code(resp.ErrorCode) != kafka.ErrBrokerIDNotRegistered {
		t.Errorf("a stranger: %+v", resp)
	}
	resp = w.beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.BrokerEpoch-- })
	if kafka.Code(resp.ErrorCode) != kafka.ErrStaleBrokerEpoch {
		t.Errorf("an old process: %+v", resp)
	}
	w.checkReplayLaw()
}

// A broker that asks to be fenced, as its disk hangs, goes on leading what nobody else
// can lead, for the sake of readers, and nothing more.
func TestStepBack(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.create(topicOf("shared", 2, 2), topicOf("alone", 2, 1))
	ledBy1 := func(topic string) func() string {
		partitions := w.Image().Topic(topic).Partitions
		i := slices.IndexFunc(partitions, func(p metadata.Partition) bool { return p.Leader == 1 })
		return func() string { return describe(w.Image().Topic(topic).Partitions[i]) }
	}
	shared, alone := ledBy1("shared"), ledBy1("alone")
	wish := func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true }
	for range 2 {
		if resp := w.beat(1, wish); resp.IsFenced || resp.ErrorCode != 0 {
			t.Errorf("asks to be fenced: %+v", resp)
		}
	}
	if shared() != "2 [2] 1" || alone() != "1 [1] 0" {
		t.Errorf("shared is %s, alone %s", shared(), alone())
	}
	if b, _ := w.Image().Broker(1); b.Available() {
		t.Error("it is available to others")
	}
	if w.up(1); alone() != "1 [1] 0" {
		t.Errorf("when it is well, alone is %s", alone())
	}
	if b, _ := w.Image().Broker(1); !b.Available() {
		t.Error("it is well, and not available")
	}
	w.checkReplayLaw()
}

// A process that did not hear the answer registers again under its own epoch.
func TestRegistrationIsIdempotent(t *testing.T) {
	w := newWorld(t, 2, nil)
	req := registration(2, -1)
	req.IncarnationID[3] = 7
	first := w.start(req)
	n := len(w.log)
	second := w.start(req)
	if first.BrokerEpoch != second.BrokerEpoch || second.ErrorCode != 0 || len(w.log) != n {
		t.Errorf("%+v, then %+v with %d records", first, second, len(w.log)-n)
	}
	req.IncarnationID[3]++
	if third := w.start(req); third.BrokerEpoch <= first.BrokerEpoch {
		t.Errorf("another process: %+v", third)
	}
}

// A second process beside one that runs is refused; one that replaces it is not.
func TestDuplicateRegistration(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.dress2()
	elsewhere := registration(2, -1)
	elsewhere.LogDirs = [][16]byte{{9}}
	if resp := w.start(elsewhere); kafka.Code(resp.ErrorCode) != kafka.ErrDuplicateBrokerRegistration {
		t.Errorf("beside one that runs: %v", kafka.Code(resp.ErrorCode))
	}
	same := registration(2, -1)
	same.LogDirs = [][16]byte{{2}}
	if resp := w.start(same); resp.ErrorCode != 0 {
		t.Errorf("on the same directory: %v", kafka.Code(resp.ErrorCode))
	}
	w.up(2)
	w.fence(2)
	if resp := w.start(elsewhere); resp.ErrorCode != 0 {
		t.Errorf("after its session: %v", kafka.Code(resp.ErrorCode))
	}
}

// A copy of a broker's data directory, which has its id, is known by its address: beside the
// broker it is refused, and only one that is started where it was replaces it at once.
func TestRegistrationOfACopy(t *testing.T) {
	w := newWorld(t, 2, nil)
	processes := byte(0)
	at := func(host string, port uint16) *kmsg.BrokerRegistrationRequest {
		processes++
		req := registration(2, -1)
		req.LogDirs, req.IncarnationID = [][16]byte{{2}}, [16]byte{processes}
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = metadata.ClusterListener, host, port
		req.Listeners = append(req.Listeners, l)
		return req
	}
	for _, step := range []struct {
		what string
		req  *kmsg.BrokerRegistrationRequest
		want kafka.Code
	}{
		{"at first", at("a", 9093), kafka.ErrNone},
		{"at another host", at("b", 9093), kafka.ErrDuplicateBrokerRegistration},
		{"at another port", at("a", 9193), kafka.ErrDuplicateBrokerRegistration},
		{"after a crash", at("a", 9093), kafka.ErrNone},
	} {
		if resp := w.start(step.req); kafka.Code(resp.ErrorCode) != step.want {
			t.Errorf("%s: %v, want %v", step.what, kafka.Code(resp.ErrorCode), step.want)
		}
		w.up(2)
	}
	w.fence(2)
	if resp := w.start(at("b", 9093)); resp.ErrorCode != 0 {
		t.Errorf("moved: %v", kafka.Code(resp.ErrorCode))
	}
}

// dress2 gives broker 2 a data directory.
func (w *world) dress2() {
	b, _ := w.Image().Broker(2)
	req := registration(2, int64(b.Epoch))
	req.LogDirs = [][16]byte{{2}}
	w.start(req)
	w.up(2)
}

// The level of the metadata is raised by the last broker that comes to know it.
func TestLevels(t *testing.T) {
	w := newWorld(t, 1, nil)
	if level := w.Image().Level(); level != metadata.CurrentLevel {
		t.Errorf("a new cluster has level %d", level)
	}
	old := registration(2, -1)
	old.Features[0].MaxSupportedVersion = metadata.CurrentLevel - 1
	if resp := w.start(old); kafka.Code(resp.ErrorCode) != kafka.ErrUnsupportedVersion {
		t.Errorf("an old version: %v", kafka.Code(resp.ErrorCode))
	}

	image, _, err := new(metadata.Image).Apply(
		&metadata.ClusterRecord{ClusterID: "c", Level: 1},
		&metadata.BrokerRecord{Broker: metadata.Broker{ID: 1, Epoch: 1, Endpoints: []metadata.Endpoint{{Host: "h"}}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	state, err := controller.New(controller.Options{Self: 1}, image)
	if err != nil {
		t.Fatal(err)
	}
	up := &world{testingT: t, State: state}
	up.start(registration(2, -1)) // Broker 1 has not said that it knows level 2.
	if level := up.Image().Level(); level != 1 {
		t.Errorf("level %d with a broker of level 1", level)
	}
	up.start(registration(1, -1))
	if level := up.Image().Level(); level != 1 {
		t.Errorf("level %d before broker 2 has said it again", level)
	}
	up.start(registration(2, -1))
	up.start(registration(1, -1))
	if b, _ := up.Image().Broker(1); up.Image().Level() != 1 || b.MaxLevel != 0 {
		t.Errorf("level %d: %+v", up.Image().Level(), b)
	}
}

// A node that was alone with an older version raises the level when it starts.
func TestLevelOfALoneNode(t *testing.T) {
	image, _, err := new(metadata.Image).Apply(
		&metadata.ClusterRecord{ClusterID: "c", Level: 1, LastBrokerEpoch: 4},
		&metadata.BrokerRecord{Broker: metadata.Broker{ID: 1, Epoch: 4, Endpoints: []metadata.Endpoint{{Host: "h"}}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	state, err := controller.New(controller.Options{Self: 1}, image)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{testingT: t, State: state}
	w.start(registration(1, 4))
	b, _ := w.Image().Broker(1)
	if w.Image().Level() != metadata.CurrentLevel || b.MaxLevel != metadata.CurrentLevel || b.Fenced || b.Epoch != 5 {
		t.Errorf("level %d: %+v", w.Image().Level(), b)
	}
}

func TestUnregisterBroker(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 3))
	ask := func(id int32) *kmsg.UnregisterBrokerResponse {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		resp, records := w.UnregisterBroker(req)
		w.replay(records)
		return resp
	}
	resp := ask(9)
	expect(t, "a stranger", resp.ErrorCode, resp.ErrorMessage, kafka.ErrBrokerIDNotRegistered, "no broker 9")
	resp = ask(3)
	expect(t, "one that runs", resp.ErrorCode, resp.ErrorMessage, kafka.ErrInvalidRequest, "is running")
	w.fence(3)
	resp = ask(3)
	expect(t, "one with replicas", resp.ErrorCode, resp.ErrorMessage, kafka.ErrInvalidRequest, "1 partition replicas")
	w.move("a", 1, 2)
	_, records := w.IncrementalAlterConfigs(incremental(broker, "3", "cordoned.log.dirs=*"))
	w.replay(records)
	if resp := ask(3); resp.ErrorCode != 0 {
		t.Errorf("drained: %s", *resp.ErrorMessage)
	}
	if _, known := w.Image().Broker(3); known || len(w.Image().Brokers()) != 2 {
		t.Error("it is still there")
	}
	if left := w.Image().Config(metadata.Resource{Type: metadata.BrokerResource, Name: "3"}); len(left) > 0 {
		t.Errorf("its configuration is still there: %v", left)
	}
	if epoch := w.register(3, -1); epoch <= 3 {
		t.Errorf("it comes back with epoch %d", epoch)
	}
	w.checkReplayLaw()
}
