package httpapi

// A produce request on a cluster. Its records go to whoever leads their partitions:
//
//	round:  those led here are appended here, the others go to their leaders, to
//	        all at once; the request as it came if one leader has all of it
//	again:  what was refused for want of a leader, with nothing appended, goes to
//	        whoever leads then, until the request's time-out is over; what may have
//	        been appended only if it has an idempotency key
//
// So a failover costs a request some time, and a record without an idempotency key is
// never sent twice where the first may have arrived.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// errElsewhere stands for the outcome of a record that another broker decides on.
var errElsewhere = errors.New("the record is on its way to another broker")

// deliver appends the records wherever they belong. body is the request's, and
// release gives it back once it is not needed any more.
func (c *produceCall) deliver(r *http.Request, body []byte, release func()) error {
	ctx := r.Context()
	until := time.Now().Add(c.timeout)
	pause := firstPause
	for {
		if err := c.round(ctx, r, body, release); err != nil {
			return err
		}
		c.begun = true
		c.left = time.Until(until)
		if !c.mayTryAgain() || c.left <= pause || ctx.Err() != nil {
			return nil
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
		view, err := c.server.topic(c.topic.Name)
		if err != nil || view.Meta.ID != c.topic.Meta.ID {
			return nil
		}
		c.topic, c.left = view, time.Until(until)
		c.beginAgain()
	}
}

// round tries once to get every record that has no place yet to its leader.
func (c *produceCall) round(ctx context.Context, r *http.Request, body []byte, release func()) error {
	parcels := c.pack(r, body)
	if len(parcels) == 0 && !c.begun {
		if err := c.appendHere(ctx); err != nil {
			return err
		}
		if c.isSettled() {
			release() // What was appended was copied; waiting takes no memory of it.
		}
		c.await(ctx)
		return nil
	}
	var sent sync.WaitGroup
	for i := range parcels {
		p := &parcels[i]
		sent.Go(func() { c.send(ctx, p) }) // Ends with the answer, and is waited for below.
	}
	if err := c.appendHere(ctx); err != nil {
		for i := range c.records {
			if x := &c.records[i]; x.isUnplaced() {
				x.err = err
			}
		}
	}
	c.await(ctx)
	sent.Wait()
	for i := range parcels {
		c.unpack(&parcels[i])
	}
	if on := (*passedOn)(nil); len(parcels) == 1 && parcels[0].whole && errors.As(parcels[0].err, &on) &&
		!slices.ContainsFunc(c.records, func(x produceRecord) bool { return x.again() }) {
		return on // The refusal of all of it, as it is.
	}
	return nil
}

// isSettled reports whether all records are appended, and none of them is tried again
// whatever becomes of it.
func (c *produceCall) isSettled() bool {
	for i := range c.records {
		if x := &c.records[i]; x.err != nil || x.idempotencyKey != nil || x.numbered {
			return false
		}
	}
	return true
}

// parcel is what goes to one broker.
type parcel struct {
	to      kafka.BrokerID
	of      []int32 // Indexes of its records.
	request *http.Request
	body    []byte
	whole   bool // It is the request as it came.
	several bool // It is a list, and so is its answer.

	results []parcelResult // If there is no err: one for each record.
	err     error
}

// parcelResult is what became of a record of a parcel.
type parcelResult struct {
	Result
	Error *insideProblem `json:"error"`
}

// pack makes a parcel for each other broker that leads partitions of records without
// a place. Those without a leader are refused.
func (c *produceCall) pack(r *http.Request, body []byte) (parcels []parcel) {
	whole := c.txn == nil // Whose records come with their partitions.
	for i := range c.records {
		x := &c.records[i]
		if !x.isUnplaced() {
			whole = false
			continue
		}
		leader := c.topic.Meta.Partitions[x.partition].Leader
		if leader == c.server.NodeID {
			whole = false
			continue
		}
		if leader == kafka.NoBroker {
			x.err, whole = noLeaderError{}, false
			continue
		}
		at := 0
		for at < len(parcels) && parcels[at].to != leader {
			at++
		}
		if at == len(parcels) {
			parcels = append(parcels, parcel{to: leader})
		}
		parcels[at].of = append(parcels[at].of, int32(i))
		x.err = errElsewhere
	}
	if whole && len(parcels) == 1 {
		p := &parcels[0]
		p.request, p.body, p.whole, p.several = r, body, true, c.several
		return parcels
	}
	for i := range parcels {
		c.write(&parcels[i], r)
	}
	return parcels
}

// write makes a request of its own of a parcel.
func (c *produceCall) write(p *parcel, r *http.Request) {
	p.several = true
	p.request = &http.Request{
		Method: http.MethodPost, RequestURI: "/v1/topics/" + url.PathEscape(c.topic.Name) + "/produce", Host: r.Host,
		Header: http.Header{"Content-Type": {typeJSON}}, RemoteAddr: r.RemoteAddr,
	}
	b := fmt.Appendf(nil, `{"timeout_ms":%d,`, max(c.left.Milliseconds(), 1))
	if c.txn != nil {
		p.request.RequestURI = c.txn.path()
		b = c.txn.appendFields(b)
	} else {
		b = fmt.Appendf(b, `"acks":%q`, acksText(c.acks))
	}
	b = append(b, `,"records":[`...)
	for k, i := range p.of {
		if k > 0 {
			b = append(b, ',')
		}
		b = c.records[i].appendRequest(b)
	}
	p.body = append(b, ']', '}')
}

// acksText is the inverse of acksOf.
func acksText(a partition.Acks) string {
	switch a {
	case partition.AcksNone:
		return "0"
	case partition.AcksLeader:
		return "1"
	}
	return "all"
}

// appendRequest appends the record as a RecordRequest, with what the client gave.
func (r *produceRecord) appendRequest(b []byte) []byte {
	b = appendNullable(append(b, `{"value":`...), r.value)
	if r.key != nil {
		b = appendNullable(append(b, `,"key_base64":`...), r.key)
	}
	if !r.chosen || r.numbered {
		b = strconv.AppendInt(append(b, `,"partition":`...), int64(r.partition), 10)
	}
	if r.timestampMs != record.NoTimestamp && !r.dated {
		b = strconv.AppendInt(append(b, `,"timestamp_ms":`...), r.timestampMs, 10)
	}
	if r.idempotencyKey != nil {
		b = appendText(append(b, `,"idempotency_key":`...), r.idempotencyKey)
	}
	for i, h := range r.plainHeaders() {
		if i == 0 {
			b = append(b, `,"headers":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"key":`...), []byte(h.Key))
		b = append(appendNullable(append(b, `,"value":`...), h.Value), '}')
	}
	if len(r.plainHeaders()) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendNullable(b, value []byte) []byte {
	if value == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, value)
	return append(b, '"')
}

// sendSlack is how much longer than the broker that it was passed on to this one
// waits for an answer.
const sendSlack = 2 * time.Second

// send sends a parcel and reads the answer.
func (c *produceCall) send(ctx context.Context, p *parcel) {
	ctx, cancel := context.WithTimeout(ctx, c.left+sendSlack)
	defer cancel()
	resp, err := c.server.Forward.Send(ctx, p.to, p.request, p.body)
	if err != nil {
		p.err = sendFailed(err)
		return
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusMultiStatus {
		p.err = readProblem(resp)
		return
	}
	b, err := readAnswer(resp)
	if err == nil {
		err = p.read(b)
	}
	if err != nil {
		p.err = &lostError{err}
	}
}

// read reads the answer to a parcel.
func (p *parcel) read(b []byte) error {
	if !p.several {
		p.results = make([]parcelResult, 1)
		return json.Unmarshal(b, &p.results[0].Result)
	}
	var all struct {
		Results []parcelResult `json:"results"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if len(all.Results) != len(p.of) {
		return fmt.Errorf("%d results of %d records", len(all.Results), len(p.of))
	}
	p.results = all.Results
	return nil
}

// unpack notes what became of the records of a parcel.
func (c *produceCall) unpack(p *parcel) {
	for k, i := range p.of {
		x := &c.records[i]
		if x.err = p.err; p.err != nil {
			continue
		}
		got := &p.results[k]
		if got.Error != nil {
			x.err = &passedOn{statusOfName(got.Error.Code), got.Error.Problem, got.Error.Undone}
			continue
		}
		x.partition, x.offset, x.timestampMs = got.Partition, kafka.Offset(got.Offset), got.TimestampMs
		x.placed = true
	}
}

// mayTryAgain notes which records are where they should be, and reports whether some
// of the others may be sent again.
func (c *produceCall) mayTryAgain() bool {
	again := false
	for i := range c.records {
		x := &c.records[i]
		if x.err == nil && x.sameAs < 0 {
			x.done = true
		}
		again = again || x.again()
	}
	if again && c.txn != nil {
		return c.mayRepeat()
	}
	return again
}

// again reports whether a record that was refused may be sent again: nothing of it was
// done, or its idempotency key sees to it that it is done once.
func (r *produceRecord) again() bool {
	switch {
	case r.err == nil || r.done:
		return false
	case undone(r.refused()):
		return true
	case r.idempotencyKey == nil && !r.numbered:
		return false
	}
	var lost *lostError
	var on *passedOn
	return errors.As(r.err, &lost) || errors.As(r.err, &on) && movedName(on.problem.Code) || moved(r.err)
}

// movedName is movedCode for the name of a code.
func movedName(name string) bool {
	for _, code := range []kafka.Code{
		kafka.ErrNotLeaderOrFollower, kafka.ErrLeaderNotAvailable, kafka.ErrFencedLeaderEpoch,
		kafka.ErrUnknownLeaderEpoch, kafka.ErrBrokerNotAvailable, kafka.ErrNetworkException,
	} {
		if name == code.String() {
			return true
		}
	}
	return false
}

// beginAgain makes the records ready that are to be sent again.
func (c *produceCall) beginAgain() {
	for i := range c.records {
		x := &c.records[i]
		if !x.again() && (x.err != nil || x.done) {
			continue
		}
		x.err, x.part, x.placed, x.sameAs, x.offset = nil, nil, false, -1, kafka.NoOffset
	}
	c.choosePartitions()
}
