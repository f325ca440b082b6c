package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// running is a broker on a disk of the test's.
type running struct {
	t      *testing.T
	log    logtest.Log
	broker *broker.Broker
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan error
}

func run(t *testing.T, disk vfs.FS) *running {
	t.Helper()
	return runWith(t, disk, nil)
}

// runWith is run with settings.
func runWith(t *testing.T, disk vfs.FS, settings map[string]string) *running {
	t.Helper()
	all := map[string]string{"log.segment.bytes": "1048576"}
	maps.Copy(all, settings)
	r := &running{t: t, ended: make(chan error, 1)}
	b, err := broker.New(t.Context(), broker.Config{
		FS: disk, Listen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", NodeID: 1,
		Settings: all,
		Logger:   slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatalf("start: %v\n%s", err, r.log.String())
	}
	ctx, stop := context.WithCancel(t.Context())
	r.broker, r.stop = b, stop
	go func() { r.ended <- b.Run(ctx) }() // Ends with stop.
	select {
	case <-b.Ready():
	case err := <-r.ended:
		t.Fatalf("start: %v\n%s", err, r.log.String())
	}
	r.client, err = kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("lines"),
		kgo.RetryTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// end stops the broker and returns how it ended.
func (r *running) end() error {
	r.t.Helper()
	r.client.Close()
	r.stop()
	return <-r.ended
}

// produce sends one record to partition 0 and returns what came of it.
func (r *running) produce(value []byte) kafka.Code {
	r.t.Helper()
	builder := record.NewBuilder(record.CodecNone, 0)
	builder.Append(time.Now().UnixMilli(), nil, value, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "lines"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = builder.Build()
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	// A version with names: the topic's id is not known here.
	resp, err := r.client.Broker(1).Request(r.t.Context(), &versioned{req, 12})
	if err != nil {
		r.t.Fatalf("produce: %v\n%s", err, r.log.String())
	}
	return kafka.Code(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// versioned pins the version of a request.
type versioned struct {
	*kmsg.ProduceRequest
	max int16
}

func (v *versioned) MaxVersion() int16 { return v.max }

// consume reads partition 0 until it has n records.
func (r *running) consume(n int) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()), kgo.ConsumeTopics("lines"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	for got := 0; got < n; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.t.Fatalf("consume, after %d of %d records: %v\n%s", got, n, err, r.log.String())
		}
		got += fetches.NumRecords()
	}
}

// fill makes a disk with n records, stopped cleanly or killed.
func fill(t *testing.T, n int, clean bool) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	r := run(t, disk)
	results := r.client.ProduceSync(t.Context(), &kgo.Record{Topic: "lines", Value: []byte("first")})
	if err := results.FirstErr(); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < n; i++ {
		if code := r.produce(fmt.Appendf(nil, "line %d", i)); code != kafka.ErrNone {
			t.Fatal(code)
		}
	}
	killed := disk.CrashClone(1, 100)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if clean {
		return disk.CrashClone(1, 100)
	}
	return killed
}

func used(t *testing.T, disk *memfs.FS) int64 {
	t.Helper()
	free, total, err := disk.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return int64(total - free)
}

// However little of the disk is free, brokers start, again and again, serve what
// is there, refuse records so that producers try again, and take them as soon as
// there is room.
func TestStartWithLittleRoom(t *testing.T) {
	for _, clean := range []bool{true, false} {
		full := fill(t, 50, clean)
		for _, room := range []int64{0, 4, 8, 12, 16, 20, 32, 64, 128, 256, 512, 1024, 2048, 4096, 6000} {
			t.Run(fmt.Sprintf("clean=%v/%dKiB", clean, room), func(t *testing.T) {
				disk := full.CrashClone(1, 100)
				disk.SetCapacity(used(t, disk) + room<<10)
				n := 50
				for round := range 4 {
					r := run(t, disk)
					r.consume(n)
					code := kafka.ErrNone
					for tries := 0; code == kafka.ErrNone && tries < 300; tries++ {
						if code = r.produce(make([]byte, 100_000)); code == kafka.ErrNone {
							n++
						}
					}
					if code != kafka.ErrKafkaStorageError {
						t.Fatalf("round %d: produce on a full disk: %v", round, code)
					}
					if told := r.log.With("disk is full and records"); len(told) != 1 || !strings.Contains(told[0], "topic=lines") {
						t.Errorf("the log says of the full disk: %q", told)
					}
					r.consume(n)
					if round == 3 {
						disk.SetCapacity(-1)
						if code := r.produce([]byte("room again")); code != kafka.ErrNone {
							t.Errorf("produce with room again: %v", code)
						}
						r.consume(n + 1)
					}
					if round == 1 {
						killed := disk.CrashClone(1, 100)
						killed.SetCapacity(used(t, disk))
						disk.SetCapacity(-1) // Let the old one end.
						if err := r.end(); err != nil {
							t.Fatal(err)
						}
						disk = killed
						continue
					}
					if err := r.end(); err != nil {
						t.Fatalf("stop: %v\n%s", err, r.log.String())
					}
				}
			})
		}
	}
}

// A disk that can't read fails the reads of what is there, and nothing else. A read that
// was not tried before its response began breaks that off, and is told of at the next.
func TestReadErrors(t *testing.T) {
	for _, warm := range []bool{false, true} {
		testReadErrors(t, warm)
	}
}

func testReadErrors(t *testing.T, warm bool) {
	disk := errorfs.Wrap(fill(t, 5, true), nil)
	r := run(t, disk)
	if warm {
		r.consume(5)
	}
	for round := range 2 {
		disk.SetInjector(func(o errorfs.Op) error {
			if o.Kind == errorfs.Read && strings.HasSuffix(o.Name, ".log") && strings.HasPrefix(o.Name, "topics/") {
				return syscall.EIO
			}
			return nil
		})
		for try := range 20 {
			code, err := r.fetch()
			breaksOff := err != nil && try < 2 // The second may still go to the broken connection.
			if code != kafka.ErrKafkaStorageError && !breaksOff {
				t.Fatalf("warm %v, round %d: fetch %d from a disk that can't read: %v, %v", warm, round, try, code, err)
			}
		}
		disk.SetInjector(nil)
		if code := r.produce([]byte("written")); code != kafka.ErrNone {
			t.Errorf("produce: %v", code)
		}
		r.consume(6 + round)
	}
	if told := r.log.With("could not be read"); len(told) != 1 {
		t.Errorf("the log says of the disk that can't read: %q", told)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// fetch reads partition 0 from offset 0.
func (r *running) fetch() (kafka.Code, error) {
	r.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes = 100, 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "lines"
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1 << 20
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := r.client.Broker(1).Request(r.t.Context(), &versionedFetch{req, 12})
	if err != nil {
		return kafka.ErrNone, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if len(answer.Topics) == 0 {
		return kafka.Code(answer.ErrorCode), nil
	}
	return kafka.Code(answer.Topics[0].Partitions[0].ErrorCode), nil
}

type versionedFetch struct {
	*kmsg.FetchRequest
	max int16
}

func (v *versionedFetch) MaxVersion() int16 { return v.max }

// A sync that fails ends the broker: nobody knows what is on the disk, and nothing
// is acknowledged any more.
func TestFailedSyncEndsTheBroker(t *testing.T) {
	disk := errorfs.Wrap(fill(t, 5, false), nil)
	r := run(t, disk)
	disk.SetInjector(func(o errorfs.Op) error {
		if o.Kind == errorfs.Sync && (strings.HasPrefix(o.Name, "topics/") || strings.HasPrefix(o.Name, "journal/")) {
			return syscall.EIO
		}
		return nil
	})
	go func() { // Ends with the broker.
		_ = r.client.ProduceSync(t.Context(), &kgo.Record{Topic: "lines", Value: []byte("never acknowledged")})
	}()
	err := <-r.ended
	var broken *commitlog.BrokenError
	if !errors.As(err, &broken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("the broker ended with %v", err)
	}
	disk.SetInjector(nil)
	r.client.Close()
	again := run(t, disk)
	again.consume(5)
	if err := again.end(); err != nil {
		t.Error(err)
	}
}
