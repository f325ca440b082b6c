package api_test

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// swell calls fn with requests of one kind that have one array of n elements,
// the smallest there are, and as few of everything else as it takes to get there.
func swell(key, version int16, n int, fn func(what string, req kmsg.Request)) {
	var paths [][]int // Fields that lead to an array, by index.
	var find func(t reflect.Type, path []int)
	find = func(t reflect.Type, path []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			at := append(append([]int(nil), path...), i)
			switch {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8:
				paths = append(paths, at)
				if f.Type.Elem().Kind() == reflect.Struct {
					find(f.Type.Elem(), at)
				}
			}
		}
	}
	request := func() kmsg.Request {
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		if p, ok := req.(*kmsg.ProduceRequest); ok {
			p.Acks = 1 // To be answered.
		}
		if d, ok := req.(interface{ Default() }); ok {
			d.Default()
		}
		return req
	}
	find(reflect.TypeOf(request()).Elem(), nil)
	for _, path := range paths {
		req := request()
		v := reflect.ValueOf(req).Elem()
		what := ""
		for i, field := range path {
			what += "." + v.Type().Field(field).Name
			count := 1
			if i == len(path)-1 {
				count = n
			}
			array := reflect.MakeSlice(v.Field(field).Type(), count, count)
			v.Field(field).Set(array)
			if v = array.Index(0); v.Kind() == reflect.Pointer {
				break
			}
		}
		fn(what, req)
	}
}

// mostDecoded is what a byte of a request may become when it is decoded, and
// mostAnswered what an element may by the time it is answered: their product
// with the bounds of requests is the memory that a stranger can ask for.
const (
	mostDecoded  = 25
	mostAnswered = 2048
)

// allocated returns the bytes that fn allocates; other goroutines' count too.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestAmplification: a request of as many elements as possible, whatever its
// kind, takes a bounded multiple of its bytes to decode and of its elements to
// answer.
func TestAmplification(t *testing.T) {
	w := startWorld(t)
	w.createTopic("seeded", 1)
	const n = 20_000
	var worstDecoded, worstAnswered float64
	for key, row := range w.table {
		for _, v := range slices.Compact([]int16{row.Min, row.Max}) {
			swell(key, v, n, func(what string, req kmsg.Request) {
				frame := frameOf(req, 1)
				if len(frame) < n {
					return // The version has no such array.
				}
				name := fmt.Sprintf("%s version %d, %d of %s", kmsg.NameForKey(key), v, n, what)
				body := req.AppendTo(nil)
				if kmsg.Key(key) != kmsg.Produce { // Read in place.
					decoded := kmsg.RequestForKey(key)
					decoded.SetVersion(v)
					bytes := int64(math.MaxInt64)
					for range 3 { // What else runs allocates as well, now and then.
						bytes = min(bytes, allocated(func() { w.must(decoded.ReadFrom(body)) }))
					}
					worstDecoded = max(worstDecoded, float64(bytes)/float64(len(body)))
					if bytes > raceFactor*mostDecoded*int64(len(body)) {
						t.Errorf("%s: %d bytes decode to %d", name, len(body), bytes)
					}
				}
				c := w.connect()
				var answer int
				bytes := allocated(func() {
					if _, err := c.conn.Write(frame); err != nil {
						t.Fatal(err)
					}
					_, b, err := c.receiveFrame()
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					answer = len(b)
				})
				w.must(c.conn.Close())
				each := float64(bytes-int64(answer)) / n
				worstAnswered = max(worstAnswered, each)
				if each > mostAnswered {
					t.Errorf("%s: %.0f bytes each", name, each)
				}
			})
		}
	}
	t.Logf("at the worst %.1f bytes a byte decoded, %.0f an element answered", worstDecoded, worstAnswered)
}

// TestTooLarge: what is beyond the bounds ends the connection, with words in the
// log, and costs little.
func TestTooLarge(t *testing.T) {
	w := startWorld(t)
	for name, c := range map[string]struct {
		req  func() kmsg.Request
		want string
	}{
		"bytes": {func() kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = make([]kmsg.MetadataRequestTopic, 4<<20/2)
			for i := range req.Topics {
				req.Topics[i].Topic = new(string)
			}
			return req
		}, "cannot read Metadata request, version 1: of 4194308 bytes, it has more than 102400 elements: " +
			"ask for less at once, or raise queued.max.request.bytes"},
		"elements": {func() kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = make([]string, 110_000)
			return req
		}, "it has more than 102400 elements"},
		"nested elements": {func() kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Partitions: make([]int32, 110_000)}}
			return req
		}, "it has more than 102400 elements"},
		"tagged fields": {func() kmsg.Request {
			req := kmsg.NewPtrListGroupsRequest()
			req.Version = 5
			for i := range uint32(110_000) {
				req.UnknownTags.Set(100+i, nil)
			}
			return req
		}, "it has more than 102400 elements"},
		"partitions of a produce": {func() kmsg.Request {
			req := produceOf(3, "seeded", 0, nil)
			req.Topics[0].Partitions = make([]kmsg.ProduceRequestTopicPartition, 70_000)
			return req
		}, "it has more than 65536 partitions"},
		"topics of a produce": {func() kmsg.Request {
			req := produceOf(3, "seeded", 0, nil)
			req.Topics = make([]kmsg.ProduceRequestTopic, 70_000)
			return req
		}, "it has more than 65536 topics"},
	} {
		t.Run(name, func(t *testing.T) {
			req := c.req()
			if req.GetVersion() == 0 {
				req.SetVersion(1)
			}
			frame := frameOf(req, 1)
			cl := w.connect()
			cl.t = t
			bytes := allocated(func() {
				if _, err := cl.conn.Write(frame); err != nil {
					t.Fatal(err)
				}
				cl.expectClosed()
			})
			reason := <-w.closed
			if most := int64(24 << 20); bytes > most {
				t.Errorf("%d bytes were allocated for a request of %d", bytes, len(frame))
			}
			if !strings.Contains(reason.Error(), c.want) {
				t.Errorf("closed because of %q, want %q", reason, c.want)
			}
		})
	}
}

// TestLargeRequestsOfRealClients: what many partitions take is answered.
func TestLargeRequestsOfRealClients(t *testing.T) {
	w := startWorld(t)
	w.createTopic("seeded", 1)
	w.must(w.ensureOffsetsTopic(t.Context()))
	name := strings.Repeat("t", 240)
	for what, req := range map[string]kmsg.Request{
		"commits": func() kmsg.Request {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Version, req.Group, req.Generation = 9, "group", -1
			for i := range 50_000 {
				metadata := "a note of the consumer's own"
				t := kmsg.NewOffsetCommitRequestTopic()
				t.Topic = fmt.Sprint(name, i)
				p := kmsg.NewOffsetCommitRequestTopicPartition()
				p.Metadata = &metadata
				t.Partitions = append(t.Partitions, p)
				req.Topics = append(req.Topics, t)
			}
			return req
		}(),
		"configs": func() kmsg.Request {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Version = 4
			for i := range 50_000 {
				r := kmsg.NewDescribeConfigsRequestResource()
				r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, fmt.Sprint(name, i)
				req.Resources = append(req.Resources, r)
			}
			return req
		}(),
		"an assignment": func() kmsg.Request {
			req := kmsg.NewPtrSyncGroupRequest()
			req.Version, req.Group = 5, "group"
			for i := range 1000 {
				req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
					MemberID: fmt.Sprint("member", i), MemberAssignment: make([]byte, 10_000),
				})
			}
			return req
		}(),
	} {
		t.Run(what, func(t *testing.T) {
			c := w.connect()
			c.t = t
			frame := frameOf(req, 1)
			if len(frame) < 3<<20 {
				t.Fatalf("a request of %d bytes proves nothing", len(frame))
			}
			if _, err := c.conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.receiveFrame(); err != nil {
				t.Errorf("no answer to a request of %d bytes: %v", len(frame), err)
			}
		})
	}
}

// TestSlowReadersAreBounded: many connections that ask for much and read nothing
// make this broker hold what it is given for that, and one that reads is served.
func TestSlowReadersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.limits.MaxAnswerBytes = 8 << 20
	w.start()
	for i := range 100 {
		w.createTopic(fmt.Sprintf("a-topic-with-some-name-%d", i), 10)
	}
	wide := func() []kmsg.Request {
		metadata, configs := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrDescribeConfigsRequest()
		metadata.Version, configs.Version = 9, 4
		for i := range 10 {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, fmt.Sprintf("a-topic-with-some-name-%d", i)
			configs.Resources = append(configs.Resources, r)
		}
		return []kmsg.Request{metadata, configs}
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var most int64
	const readers = 40
	for i := range readers {
		c := w.connectFrom(fmt.Sprintf("10.0.1.%d", i))
		go func() { // Ends with the connection, at the latest with the test.
			for id := range int32(100) {
				if _, err := c.conn.Write(frameOf(wide[id%2], id)); err != nil {
					return
				}
			}
		}()
	}
	honest := w.connectFrom("10.0.2.1")
	for range 30 {
		honest.ask(wide[0])
		most = max(most, w.server.Stats().AnswerBytes)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("at most %d bytes of answers were held, the heap grew by %d", most, grown)
	if most > 16<<20 || grown > 40<<20 {
		t.Errorf("%d bytes of answers were held, and the heap grew by %d", most, grown)
	}
}

// TestNamedAgain: an answer does not grow with how often a request names a thing.
func TestNamedAgain(t *testing.T) {
	w := startWorld(t)
	w.createTopic("seeded", 3)
	w.must(w.ensureOffsetsTopic(t.Context()))
	c := w.connect()
	const n = 20_000
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	configs := kmsg.NewPtrDescribeConfigsRequest()
	groups := kmsg.NewPtrDescribeGroupsRequest()
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "seeded", Partitions: make([]int32, n)}}
	offsets := kmsg.NewPtrOffsetFetchRequest()
	offsets.Version, offsets.Group = 7, "g"
	offsets.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "seeded", Partitions: make([]int32, n)}}
	topic := "seeded"
	for range n {
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		r.ConfigNames = []string{"retention.ms"}
		configs.Resources = append(configs.Resources, r)
		groups.Groups = append(groups.Groups, "g")
	}
	configs.Resources[n/2].ConfigNames = []string{"cleanup.policy"}
	configs.Version, groups.Version = 4, 6
	for _, req := range []kmsg.Request{metadata, configs, groups, producers, offsets} {
		id := c.send(req)
		got, body, err := c.receiveFrame()
		w.must(err)
		if got != id || len(body) > 2000 {
			t.Errorf("%s: %d bytes", kmsg.NameForKey(req.Key()), len(body))
		}
	}
	answer := c.ask(configs).(*kmsg.DescribeConfigsResponse)
	if len(answer.Resources) != 1 || len(answer.Resources[0].Configs) != 2 {
		t.Errorf("the configs of a resource that was named again: %+v", answer)
	}
}

// TestWaitingAnswersAreCharged: what answers hold while they wait for records, or
// for the disk, is counted, and is given back.
func TestWaitingAnswersAreCharged(t *testing.T) {
	disk := newSlowDisk()
	w := newWorld(t)
	w.files = errorfs.Wrap(memfs.New(), disk.inject)
	w.start()
	topic := w.createTopic("t", 500)
	close(disk.on)
	held := func() int64 { return w.server.Stats().AnswerBytes }
	before := held()
	fetch := fetchOf(12, topic, make([]kafka.Offset, 500)...)
	fetch.MinBytes, fetch.MaxWaitMillis = 1, 60_000
	produce := produceOf(9, "t", 0, nil)
	produce.Topics[0].Partitions = nil
	for i := range int32(500) {
		produce.Topics[0].Partitions = append(produce.Topics[0].Partitions,
			kmsg.ProduceRequestTopicPartition{Partition: i, Records: batchOf("v")})
	}
	parked, waiting := w.connect(), w.connect()
	parked.send(fetch)
	id := waiting.send(produce)
	for held() < before+500*200 { // Ends with the test's own limit of time, if never.
		w.settle()
	}
	close(disk.gate)
	waiting.receive(id)
	w.must(parked.conn.Close())
	w.must(waiting.conn.Close())
	for held() > before {
		w.settle()
	}
}
