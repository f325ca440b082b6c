package api_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/api"
)

// mayWait says that a request may have no answer for long, or none at all.
func mayWait(key kmsg.Key) bool {
	return slices.Contains([]kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.JoinGroup, kmsg.SyncGroup}, key)
}

// The most that a request may make the broker allocate: so much, and so much for
// each of its bytes.
const (
	fuzzAllocated        = 32 << 20
	fuzzAllocatedPerByte = 8 << 10
)

// fuzzWorld is a broker with a topic, a group's offsets, and little room.
func fuzzWorld(t *testing.T) *world {
	w := newWorld(t)
	w.settings["max.partitions.per.broker"] = "20"
	w.start()
	w.createTopic("t", 2)
	w.must(w.ensureOffsetsTopic(t.Context()))
	return w
}

// alive proves that the broker still answers others.
func (w *world) alive() {
	w.t.Helper()
	c := w.connect()
	c.ask(kmsg.NewPtrDescribeClusterRequest())
	w.must(c.conn.Close())
}

// FuzzRequest gives the handler of a request arbitrary bytes for a body: no panic,
// bounded memory, and an answer that decodes or the end of the connection.
func FuzzRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	s := (&api.Services{}).Rows()
	for _, row := range s {
		for _, version := range slices.Compact([]int16{row.Min, row.Max}) {
			req := kmsg.RequestForKey(row.Key)
			req.SetVersion(version)
			f.Add(row.Key, version, req.AppendTo(nil))
			api.Fill(r, reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			f.Add(row.Key, version, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if kmsg.RequestForKey(key) != nil && len(body) <= 64<<10 {
			fuzzWorld(t).standBody(key, version, body)
		}
	})
}

// FuzzClusterRequest is FuzzRequest for the listener of the other brokers.
func FuzzClusterRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for key, row := range (&api.Services{}).NewClusterTable(nil).Rows() {
		for _, version := range slices.Compact([]int16{row.Min, row.Max}) {
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			f.Add(key, version, req.AppendTo(nil))
			api.Fill(r, reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			f.Add(key, version, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		if kmsg.RequestForKey(key) == nil || len(body) > 64<<10 {
			return
		}
		w := fuzzWorld(t)
		clients := w.table
		w.table = w.services.NewClusterTable(w.plane).Rows()
		for key, row := range clients {
			if _, ok := w.table[key]; !ok {
				w.table[key] = row // To see that it is alive.
			}
		}
		w.standBody(key, version, body)
	})
}

// standBody sends a request with arbitrary bytes for a body.
func (w *world) standBody(key, version int16, body []byte) {
	t, req := w.t, kmsg.RequestForKey(key)
	req.SetVersion(version)
	c := w.connect()
	frame := frameOf(&rawRequest{req, body}, 7)
	start := time.Now()
	bytes := allocated(func() {
		if _, err := c.conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		c.expectSane(req)
	})
	if most := int64(fuzzAllocated + fuzzAllocatedPerByte*len(body)); bytes > most {
		t.Errorf("%s version %d: %d bytes were allocated for a body of %d", kmsg.NameForKey(key), version, bytes, len(body))
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("%s version %d took %s", kmsg.NameForKey(key), version, d)
	}
	w.alive()
}

// expectSane reads an answer that decodes, or the end of the connection. Some
// requests may also be left waiting.
func (c *client) expectSane(req kmsg.Request) {
	c.t.Helper()
	wait := 10 * time.Second
	if mayWait(kmsg.Key(req.Key())) {
		wait = 20 * time.Millisecond
	}
	_, body, err := c.receiveWithin(wait)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && mayWait(kmsg.Key(req.Key())), errors.Is(err, io.EOF):
		return
	case err != nil:
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	resp := req.ResponseKind()
	if kmsg.Key(req.Key()) == kmsg.ApiVersions && (req.GetVersion() < 0 || req.GetVersion() > 5) {
		resp.SetVersion(0)
	}
	if err := decodeExactly(resp, body); err != nil {
		c.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
}

// rawRequest is a request whose body is given.
type rawRequest struct {
	kmsg.Request
	body []byte
}

// AppendTo implements kmsg.Request.
func (r *rawRequest) AppendTo(dst []byte) []byte { return append(dst, r.body...) }

// tame makes a random request one that names what is there and waits for little.
func tame(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			tame(r, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			tame(r, v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{"t", "g", "", "consumer", "m"}[r.IntN(5)])
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported() || f.Name == "Version":
			case f.Type.Kind() == reflect.Int32 && (f.Name == "Partition" || f.Name == "MaxWaitMillis"):
				v.Field(i).SetInt(int64(r.IntN(3)))
			case f.Type.Kind() == reflect.Int32 && f.Name == "NumPartitions":
				v.Field(i).SetInt(1)
			default:
				tame(r, v.Field(i))
			}
		}
	}
}

// FuzzSession sends sequences of requests on one connection, without waiting for
// answers: these come in order and decode, and what was produced is what can be
// read.
func FuzzSession(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add(uint64(2), []byte{0, 0, 0, 1, 1, 1, 2})
	f.Add(uint64(3), []byte{6, 10, 7, 4, 5, 8, 26, 4})
	f.Fuzz(func(t *testing.T, seed uint64, steps []byte) {
		if len(steps) > 50 {
			return
		}
		r := rand.New(rand.NewPCG(seed, seed))
		w := fuzzWorld(t)
		rows := (&api.Services{}).Rows()
		c := w.connect()
		var first int32
		var appended int64
		var reqs []kmsg.Request
		for _, step := range steps {
			row := rows[int(step)%len(rows)]
			if row.Key == int16(kmsg.Produce) {
				reqs = append(reqs, produceOf(9, "t", 0, batchOf("v")))
				continue
			}
			version := row.Min + int16(r.IntN(int(row.Max-row.Min)+1))
			req := kmsg.RequestForKey(row.Key)
			api.Fill(r, reflect.ValueOf(req).Elem())
			tame(r, reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			if !destroys(req) {
				reqs = append(reqs, req)
			}
		}
		if len(reqs) == 0 {
			return
		}
		first = c.sendAll(reqs...)
		for i, req := range reqs {
			id, body, err := c.receiveWithin(200 * time.Millisecond)
			if err != nil {
				break // One waits, or ended the connection.
			}
			if id != first+int32(i) {
				t.Fatalf("answer %d is to %d", i, id-first)
			}
			resp := req.ResponseKind()
			if err := decodeExactly(resp, body); err != nil {
				t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
			}
			if p, ok := resp.(*kmsg.ProduceResponse); ok {
				if rp := p.Topics[0].Partitions[0]; rp.ErrorCode != 0 || rp.BaseOffset != appended {
					t.Fatalf("produced: %+v, want offset %d", rp, appended)
				}
				appended++
			}
		}
		if end := int64(w.partition("t", 0).Log().LogEndOffset()); end < appended {
			t.Errorf("the log ends at %d after %d records", end, appended)
		}
		w.alive()
	})
}

// destroys says that a request may take away what the model counts on.
func destroys(req kmsg.Request) bool {
	return slices.Contains([]kmsg.Key{
		kmsg.DeleteTopics, kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs, kmsg.DeleteRecords,
	}, kmsg.Key(req.Key()))
}
