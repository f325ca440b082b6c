package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

func TestHealthOfCluster(t *testing.T) {
	at := []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1}}
	three := []kafka.BrokerID{1, 2, 3}
	image, _, err := new(metadata.Image).Apply(
		&metadata.ClusterRecord{ClusterID: "c", Level: metadata.CurrentLevel},
		&metadata.BrokerRecord{Broker: metadata.Broker{ID: 1, Endpoints: at}},
		&metadata.BrokerRecord{Broker: metadata.Broker{ID: 2, Endpoints: at}},
		&metadata.BrokerRecord{Broker: metadata.Broker{ID: 3, Endpoints: at, Fenced: true}},
		&metadata.TopicCreated{Name: "sound", ID: kafka.TopicID{1}, Partitions: []metadata.Partition{
			{Replicas: three, ISR: three, Leader: 1},
			{Replicas: three, ISR: three[:2], Leader: 1},
			{Replicas: three, ISR: three[:1], Leader: 1},
		}, Config: map[string]string{"min.insync.replicas": "2"}},
		&metadata.TopicCreated{Name: "risky", ID: kafka.TopicID{2}, Partitions: []metadata.Partition{
			{Replicas: three[:1], ISR: three[:1], Leader: kafka.NoBroker},
		}, Config: map[string]string{"unclean.leader.election.enable": "true"}},
		&metadata.TopicCreated{Name: "tight", ID: kafka.TopicID{3}, Partitions: []metadata.Partition{
			{Replicas: three, ISR: three, Leader: 2},
		}, Config: map[string]string{"min.insync.replicas": "3"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := httpapi.Health{
		Brokers: 3, BrokersDown: []int32{3}, Partitions: 5, Leaderless: 1, UnderMin: 1, NotInSync: 2, OneReplica: 1,
		NoSpare: 1, Unclean: 1,
	}
	if diff := cmp.Diff(want, httpapi.HealthOf(image, config.Default())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
