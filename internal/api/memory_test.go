package api_test

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
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
					bytes := allocated(func() { w.must(decoded.ReadFrom(body)) })
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
		}, "it has 4194308 bytes, and at most 2796202 are taken"},
		"elements": {func() kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = make([]string, 70_000)
			return req
		}, "it has 70000 elements, and at most 65536 are taken"},
		"nested elements": {func() kmsg.Request {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Partitions: make([]int32, 70_000)}}
			return req
		}, "it has 70001 elements, and at most 65536 are taken"},
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
			if name != "bytes" && req.GetVersion() == 0 {
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
