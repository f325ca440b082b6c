package strandline_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// TestProduceAndConsume is the whole path: socket to disk and back, in a group.
func TestProduceAndConsume(t *testing.T) {
	srv := strandlinetest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl := client(t, srv.Addr(), kgo.AllowAutoTopicCreation(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	for i := range 100 {
		r := &kgo.Record{Topic: "events", Key: []byte("k"), Value: fmt.Append(nil, i)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < 100; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fs.RecordsAll() {
			if string(r.Value) != fmt.Sprint(got) {
				t.Fatalf("record %d is %q", got, r.Value)
			}
			got++
		}
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	lag, err := kadm.NewClient(cl).Lag(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if err := lag.Error(); err != nil || lag["g"].Lag.Total() != 0 {
		t.Errorf("lag %d, %v", lag["g"].Lag.Total(), err)
	}
}

// TestRestart: what was acknowledged is there after a stop and a start, and so
// are the topic, its id and the committed offsets.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	run := func(fn func(cl *kgo.Client, adm *kadm.Client)) {
		t.Helper()
		srv, err := strandline.Start(ctx, strandline.Config{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()), kgo.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		fn(cl, kadm.NewClient(cl))
		cl.Close()
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var id kadm.TopicID
	run(func(cl *kgo.Client, adm *kadm.Client) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "kept", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "kept", Partition: 0, At: 1, LeaderEpoch: -1})
		if err := adm.CommitAllOffsets(ctx, "g", offsets); err != nil {
			t.Fatal(err)
		}
		topics, err := adm.ListTopics(ctx, "kept")
		if err != nil {
			t.Fatal(err)
		}
		id = topics["kept"].ID
	})
	run(func(_ *kgo.Client, adm *kadm.Client) {
		topics, err := adm.ListTopics(ctx, "kept")
		if err != nil || topics["kept"].ID != id {
			t.Errorf("topic id %v, was %v; %v", topics["kept"].ID, id, err)
		}
		ends, err := adm.ListEndOffsets(ctx, "kept")
		if err != nil || ends["kept"][0].Offset != 1 {
			t.Errorf("end offsets %v, %v", ends, err)
		}
		offsets, err := adm.FetchOffsets(ctx, "g")
		if o, ok := offsets.Lookup("kept", 0); err != nil || !ok || o.At != 1 {
			t.Errorf("committed offset %v, %v", o, err)
		}
	})
}

// TestSecondBroker: two brokers may not share a data directory.
func TestSecondBroker(t *testing.T) {
	dir := t.TempDir()
	strandlinetest.Start(t, strandlinetest.OnDisk(dir))
	if srv, err := strandline.Start(t.Context(), strandline.Config{DataDir: dir}); err == nil {
		_ = srv.Close()
		t.Fatal("a second broker started on the same data directory")
	} else {
		t.Log(err)
	}
}

// TestBadConfig: what is wrong is named.
func TestBadConfig(t *testing.T) {
	for name, c := range map[string]strandline.Config{
		"unknown setting": {Settings: map[string]string{"num.partition": "3"}},
		"bad value":       {Settings: map[string]string{"num.partitions": "many"}},
		"bad address":     {Listen: "nowhere"},
		"which address":   {Listen: "0.0.0.0:0"},
		"no address":      {Advertise: "0.0.0.0:1"},
		"two listeners":   {Settings: map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0"}},
		"two directories": {Settings: map[string]string{"log.dirs": "/elsewhere"}},
	} {
		srv, err := strandline.Start(t.Context(), c)
		if err == nil {
			_ = srv.Close()
			t.Errorf("%s: started", name)
		}
		t.Logf("%s: %v", name, err)
	}
}

// TestListenersSetting: Kafka's settings for addresses work as well as flags.
func TestListenersSetting(t *testing.T) {
	srv := strandlinetest.Start(t, strandlinetest.WithSetting("listeners", "PLAINTEXT://127.0.0.1:0"),
		strandlinetest.WithSetting("advertised.listeners", "PLAINTEXT://localhost:1234"))
	if srv.Addr() != "localhost:1234" {
		t.Errorf("advertised %s", srv.Addr())
	}
	conn, err := net.Dial("tcp", srv.ListenAddr())
	if err != nil {
		t.Fatalf("nobody listens on %s: %v", srv.ListenAddr(), err)
	}
	_ = conn.Close()
	if srv := strandlinetest.Start(t); srv.Addr() != srv.ListenAddr() {
		t.Errorf("advertised %s, listening on %s", srv.Addr(), srv.ListenAddr())
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		srv, err := strandline.Start(b.Context(), strandline.Config{})
		if err != nil {
			b.Fatal(err)
		}
		if err := srv.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
