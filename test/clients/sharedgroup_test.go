package clients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// given is a record that a member was given in a generation of the group.
type given struct {
	Partition  int32
	Offset     int64
	generation int32
	member     string
}

// httpMember reads as a member over HTTP until stop is closed and there has been
// nothing for long enough that what others owned has come here.
func httpMember(base string, stop <-chan struct{}, have func([]given)) error {
	for empty := 0; ; {
		last := false
		select {
		case <-stop:
			last = true
		default:
		}
		var answer struct {
			Records     []given
			NextOffsets map[string]int64 `json:"next_offsets"`
			Generation  int32
		}
		err := call(http.MethodGet, base+"/v1/topics/orders/consume?group=billing&member=web&max_bytes=4000&wait_ms=500"+
			"&session_timeout_ms=6000", nil, &answer)
		if err != nil {
			return err
		}
		for i := range answer.Records {
			answer.Records[i].generation, answer.Records[i].member = answer.Generation, "web"
		}
		have(answer.Records)
		if empty++; len(answer.Records) > 0 {
			empty = 0
			// A commit that comes too late is no loss: others read from the last.
			_ = call(http.MethodPost, base+"/v1/topics/orders/commit", map[string]any{
				"group": "billing", "member": "web", "offsets": answer.NextOffsets,
			}, nil)
		} else if last && empty >= 8 {
			return nil
		}
	}
}

// call sends a request with JSON and reads the answer, if it is one of success.
func call(method, url string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if body == nil {
		req.Body = http.NoBody
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %s %w", method, url, resp.Status, text, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// A Java consumer and a member over HTTP share a group: no two of them are given
// records of one partition in one generation, none is given twice in a generation,
// and every record is given to somebody.
func TestJavaAndHTTPShareAGroup(t *testing.T) {
	cp := harness.JavaClasspath(t, limit)
	for _, assignor := range []string{"RangeAssignor", "CooperativeStickyAssignor", "StickyAssignor"} {
		t.Run(assignor, func(t *testing.T) { shareWithJava(t, cp, "org.apache.kafka.clients.consumer."+assignor) })
	}
}

func shareWithJava(t *testing.T, classpath, assignor string) {
	const partitions, forJava = 6, 400
	b := harness.StartHTTP(t, harness.Binary(t), t.TempDir())
	base := "http://" + b.HTTP
	if err := call(http.MethodPost, base+"/v1/topics", map[string]any{"name": "orders", "partitions": partitions}, nil); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []given
	joined := make(chan struct{}) // Closed when the member over HTTP has had something.
	have := func(more []given) {
		mu.Lock()
		defer mu.Unlock()
		if len(all) == 0 && len(more) > 0 {
			close(joined)
		}
		all = append(all, more...)
	}
	stopProducing, stopReading := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	produced := 0
	work.Go(func() { // Ends with stopProducing.
		for {
			select {
			case <-stopProducing:
				return
			case <-time.After(5 * time.Millisecond):
			}
			var records []map[string]any
			for i := range 2 * partitions {
				records = append(records, map[string]any{"partition": i % partitions, "value_text": "x"})
			}
			if err := call(http.MethodPost, base+"/v1/topics/orders/produce", map[string]any{"records": records}, nil); err != nil {
				t.Error(err)
				return
			}
			produced += len(records)
		}
	})
	var reading sync.WaitGroup
	reading.Go(func() { // Ends with stopReading.
		if err := httpMember(base, stopReading, have); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-joined:
	case <-time.After(30 * time.Second):
		t.Fatal("the member over HTTP was given nothing")
	}
	out, err := harness.TryJava(limit, classpath, "SharedGroup", b.Addr, "orders", "billing", assignor, fmt.Sprint(forJava))
	close(stopProducing)
	work.Wait()
	close(stopReading)
	reading.Wait()
	if err != nil || !strings.Contains(out, "all ok") {
		t.Fatalf("the Java member: %v\n%s", err, out)
	}
	checkGiven(t, append(all, readJava(t, out)...), partitions, produced)
}

// readJava reads what the Java member was given.
func readJava(t *testing.T, out string) (all []given) {
	t.Helper()
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "record ") {
			continue
		}
		g := given{member: "java"}
		if _, err := fmt.Sscanf(line, "record %d %d %d", &g.generation, &g.Partition, &g.Offset); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, g)
	}
	return all
}

// checkGiven checks who was given what.
func checkGiven(t *testing.T, all []given, partitions, produced int) {
	t.Helper()
	owners, times := map[[2]int32]string{}, map[given]int{}
	members, seen := map[int32]map[string]bool{}, map[[2]int64]bool{}
	for _, g := range all {
		seen[[2]int64{int64(g.Partition), g.Offset}] = true
		if g.generation < 0 {
			continue // The Java client knows that it is out of the group, and no more.
		}
		at := [2]int32{g.Partition, g.generation}
		if owner, ok := owners[at]; ok && owner != g.member {
			t.Errorf("partition %d in generation %d: records for %s and for %s", g.Partition, g.generation, owner, g.member)
		}
		owners[at] = g.member
		if times[g]++; times[g] == 2 {
			t.Errorf("record %d of partition %d was given twice in generation %d", g.Offset, g.Partition, g.generation)
		}
		if members[g.generation] == nil {
			members[g.generation] = map[string]bool{}
		}
		members[g.generation][g.member] = true
	}
	for p := range partitions {
		for offset := range produced / partitions {
			if !seen[[2]int64{int64(p), int64(offset)}] {
				t.Errorf("record %d of partition %d was given to nobody", offset, p)
			}
		}
	}
	shared := false
	for _, m := range members {
		shared = shared || len(m) == 2
	}
	if !shared {
		t.Errorf("the two never were members at the same time: %v", members)
	}
	t.Logf("%d records, given %d times in %d generations", produced, len(all), len(members))
}
