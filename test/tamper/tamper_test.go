package tamper_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/tamper"
)

// A request that is picked does not arrive by itself, the client tries again, and what
// was picked can be delivered then.
func TestPick(t *testing.T) {
	s := strandlinetest.Start(t)
	var way tamper.Way
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Addr()), kgo.Dialer(way.Dial), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "orders", 1, 1
	create.Topics = append(create.Topics, topic)
	create.TimeoutMillis = 1000
	var held *tamper.Request
	way.Pick(kmsg.CreateTopics, func(r *tamper.Request) { held = r })
	resp, err := create.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create: %v, %v", resp, err)
	}
	if held == nil {
		t.Fatal("nothing was picked")
	}
	const exists = 36
	late := kmsg.NewPtrCreateTopicsResponse()
	if err := held.Deliver(t.Context(), late); err != nil || late.Topics[0].ErrorCode != exists {
		t.Errorf("delivered late: %+v, %v", late, err)
	}
	s.Close()
	if err := held.Deliver(t.Context(), late); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("delivered to nobody: %v", err)
	}
}
