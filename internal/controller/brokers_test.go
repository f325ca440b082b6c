package controller_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// TestLoneBrokerComesBack: a broker that is alone, and gave up what it led when it went down,
// leads it again from its registration on, however it went down in the end.
func TestLoneBrokerComesBack(t *testing.T) {
	for what, clean := range map[string]bool{"clean": true, "killed on the way": false} {
		w := newWorld(t, 1, nil)
		w.create(topicOf("a", 2, 1))
		leaders := func(want kafka.BrokerID) {
			t.Helper()
			for i, p := range w.Image().Topic("a").Partitions {
				if p.Leader != want {
					t.Errorf("%s: partition %d is led by %d, want %d: %+v", what, i, p.Leader, want, p)
				}
			}
		}
		for range 2 {
			w.beat(1, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true })
		}
		leaders(kafka.NoBroker)
		previous := int64(-1)
		if b, _ := w.Image().Broker(1); clean {
			previous = int64(b.Epoch)
		}
		w.register(1, previous)
		leaders(1)
		if b, _ := w.Image().Broker(1); b.Fenced {
			t.Errorf("%s: it is fenced", what)
		}
		w.checkReplayLaw()
	}
}

func TestRegisterBroker(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.create(topicOf("a", 2, 1))
	epoch := func() kafka.LeaderEpoch { return w.Image().Topic("a").Partitions[1].LeaderEpoch }
	first, _ := w.Image().Broker(1)

	second := w.register(1, int64(first.Epoch)) // Went down cleanly.
	if second <= int64(first.Epoch) || epoch() != 0 {
		t.Errorf("after a clean stop: broker epoch %d, leader epoch %d", second, epoch())
	}
	third := w.register(1, -1)
	if third <= second || epoch() != 1 {
		t.Errorf("after a crash: broker epoch %d, leader epoch %d", third, epoch())
	}
	w.register(1, second) // Cleanly, but not the last time.
	if epoch() != 2 {
		t.Errorf("after a crash since a clean stop: leader epoch %d", epoch())
	}
	w.register(2, -1)
	if epoch() != 2 || len(w.Image().Brokers()) != 2 {
		t.Errorf("another broker: leader epoch %d", epoch())
	}
	if b, _ := w.Image().Broker(2); b.Host != "host2" || b.Port != 9092 {
		t.Errorf("registered: %+v", b)
	}

	listener := kmsg.NewBrokerRegistrationRequestListener()
	for _, c := range []struct {
		cluster   string
		id        int32
		listeners int
		want      kafka.Code
	}{
		{"other", 1, 1, kafka.ErrInconsistentClusterID},
		{"c", -1, 1, kafka.ErrInvalidRegistration},
		{"c", 1, 0, kafka.ErrInvalidRegistration},
	} {
		req := kmsg.NewPtrBrokerRegistrationRequest()
		req.ClusterID, req.BrokerID = c.cluster, c.id
		req.Listeners = slices.Repeat([]kmsg.BrokerRegistrationRequestListener{listener}, c.listeners)
		resp, records := w.RegisterBroker(req)
		if kafka.Code(resp.ErrorCode) != c.want || records != nil || resp.BrokerEpoch != -1 {
			t.Errorf("%+v: %v", c, kafka.Code(resp.ErrorCode))
		}
	}
	if id, records := w.FoundCluster("again"); id != "c" || records != nil {
		t.Errorf("founded again: %s", id)
	}
	w.checkReplayLaw()
}

func TestAllocateProducerIDs(t *testing.T) {
	w := newWorld(t, 1, nil)
	b, _ := w.Image().Broker(1)
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = 1, int64(b.Epoch)
	for want := int64(0); want < 3000; want += 1000 {
		resp, records := w.AllocateProducerIDs(req)
		if resp.ErrorCode != 0 || resp.ProducerIDStart != want || resp.ProducerIDLen != 1000 {
			t.Errorf("%+v", resp)
		}
		w.replay(records)
	}
	req.BrokerEpoch--
	resp, records := w.AllocateProducerIDs(req)
	if kafka.Code(resp.ErrorCode) != kafka.ErrStaleBrokerEpoch || records != nil {
		t.Errorf("an old process: %+v", resp)
	}
	w.checkReplayLaw()
}

func TestAlterPartition(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 3), topicOf("b", 1, 2))
	id := w.Image().Topic("a").ID
	part := func() *kmsg.AlterPartitionRequestTopicPartition {
		p := w.Image().Topic("a").Partitions[0]
		return &kmsg.AlterPartitionRequestTopicPartition{
			LeaderEpoch: int32(p.LeaderEpoch), PartitionEpoch: int32(p.PartitionEpoch),
		}
	}
	ask := func(broker int32, p *kmsg.AlterPartitionRequestTopicPartition, isr ...int32) *kmsg.AlterPartitionRequest {
		b, _ := w.Image().Broker(kafka.BrokerID(broker))
		req := kmsg.NewPtrAlterPartitionRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = 3, broker, int64(b.Epoch)
		for _, id := range isr {
			member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			member.BrokerID = id
			if b, ok := w.Image().Broker(kafka.BrokerID(id)); ok {
				member.BrokerEpoch = int64(b.Epoch)
			}
			p.NewEpochISR = append(p.NewEpochISR, member)
		}
		p.NewISR = isr
		rt := kmsg.NewAlterPartitionRequestTopic()
		rt.TopicID, rt.Partitions = id, append(rt.Partitions, *p)
		req.Topics = append(req.Topics, rt)
		return req
	}
	run := func(what string, req *kmsg.AlterPartitionRequest, want kafka.Code) {
		t.Helper()
		resp, records := w.AlterPartition(req)
		got := kafka.Code(resp.ErrorCode)
		if got == kafka.ErrNone {
			got = kafka.Code(resp.Topics[0].Partitions[0].ErrorCode)
		}
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		if want != kafka.ErrNone && records != nil {
			t.Errorf("%s: refused, with records", what)
		}
		w.replay(records)
	}
	leader := w.Image().Topic("a").Partitions[0].Leader
	if leader != 1 {
		t.Fatalf("the leader is %d", leader)
	}
	run("shrink", ask(1, part(), 1, 2), kafka.ErrNone)
	if p := w.Image().Topic("a").Partitions[0]; !slices.Equal(p.ISR, []kafka.BrokerID{1, 2}) || p.PartitionEpoch != 1 ||
		p.LeaderEpoch != 0 {
		t.Errorf("shrunk: %+v", p)
	}
	run("the same again", ask(1, part(), 1, 2), kafka.ErrNone)
	run("grow", ask(1, part(), 1, 2, 3), kafka.ErrNone)
	run("shrink more", ask(1, part(), 1), kafka.ErrNone)

	edited := func(edit func(*kmsg.AlterPartitionRequest), isr ...int32) *kmsg.AlterPartitionRequest {
		req := ask(1, part(), isr...)
		edit(req)
		return req
	}
	first := func(r *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionRequestTopicPartition {
		return &r.Topics[0].Partitions[0]
	}
	type request = kmsg.AlterPartitionRequest
	for what, c := range map[string]struct {
		req  *request
		want kafka.Code
	}{
		"not the leader":    {ask(2, part(), 1, 2), kafka.ErrInvalidRequest},
		"without leader":    {ask(1, part(), 2), kafka.ErrInvalidRequest},
		"no ISR":            {ask(1, part()), kafka.ErrInvalidRequest},
		"not a replica":     {ask(1, part(), 1, 7), kafka.ErrInvalidRequest},
		"twice":             {ask(1, part(), 1, 2, 2), kafka.ErrInvalidRequest},
		"old leader epoch":  {edited(func(r *request) { first(r).LeaderEpoch-- }, 1, 2), kafka.ErrFencedLeaderEpoch},
		"new leader epoch":  {edited(func(r *request) { first(r).LeaderEpoch++ }, 1, 2), kafka.ErrNotController},
		"old epoch":         {edited(func(r *request) { first(r).PartitionEpoch-- }, 1, 2), kafka.ErrInvalidUpdateVersion},
		"new epoch":         {edited(func(r *request) { first(r).PartitionEpoch++ }, 1, 2), kafka.ErrNotController},
		"old broker epoch":  {edited(func(r *request) { r.BrokerEpoch-- }, 1, 2), kafka.ErrStaleBrokerEpoch},
		"unknown topic":     {edited(func(r *request) { r.Topics[0].TopicID = [16]byte{9} }, 1), kafka.ErrUnknownTopicID},
		"unknown partition": {edited(func(r *request) { first(r).Partition = 4 }, 1), kafka.ErrUnknownTopicOrPartition},
		"restarted member": {
			edited(func(r *request) { first(r).NewEpochISR[1].BrokerEpoch-- }, 1, 2), kafka.ErrIneligibleReplica,
		},
	} {
		run(what, c.req, c.want)
	}
	run("a member whose epoch is not known", edited(func(r *request) {
		first(r).NewEpochISR[1].BrokerEpoch = -1
	}, 1, 2), kafka.ErrNone)
	run("version 2", edited(func(r *request) { r.Version, first(r).NewEpochISR = 2, nil }, 1, 2, 3), kafka.ErrNone)

	double := ask(1, part(), 1)
	double.Topics[0].Partitions = append(double.Topics[0].Partitions, double.Topics[0].Partitions[0])
	resp, records := w.AlterPartition(double)
	w.replay(records)
	if code := kafka.Code(resp.Topics[0].Partitions[1].ErrorCode); code != kafka.ErrInvalidRequest {
		t.Errorf("a partition twice: %v", code)
	}
	w.checkReplayLaw()
}
