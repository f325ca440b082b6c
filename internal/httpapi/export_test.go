package httpapi

import (
	"net/http"
	"net/url"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/txn"
)

// Serve returns the handler of a row that does what fn does.
func Serve(services Services, fn func(http.ResponseWriter, *http.Request) error) http.Handler {
	return newServer(nil, services).serve(func(_ *server, w http.ResponseWriter, r *http.Request) error { return fn(w, r) })
}

// Guarded runs what reads a stranger's bytes.
func Guarded(read func() error) error { return guarded(read) }

// Route is a row of the table, for tests.
type Route struct {
	Method, Path string
	Body         any
	Answers      map[int]any
	Conflicts    bool
}

// Routes returns the table.
func Routes() []Route {
	var out []Route
	for _, r := range routes() {
		out = append(out, Route{r.method, r.path, r.body, r.answers, r.conflicts})
	}
	return out
}

// StatusOf returns the status that a code comes with.
func StatusOf(code kafka.Code) int { return statusOf(code) }

// FieldNames are the names that the produce request is read by.
func FieldNames() (request []string, record int, header []string) {
	return fieldNames, recordFields, headerNames
}

// TransactionFieldNames are the names that a produce request in a transaction is read by.
func TransactionFieldNames() []string { return txnFieldNames }

// TokenOf and ReadToken write and read what a transaction goes by.
func TokenOf(p txn.Producer) string              { return tokenOf(p) }
func ReadToken(text string) (txn.Producer, bool) { return readToken(text) }

// ReadProduce reads a produce request in place and returns its records as
// RecordRequests with keys and values in bytes.
func ReadProduce(body []byte) ([]RecordRequest, error) {
	return newProduceCall(nil).readRecordRequests(body)
}

// ReadTransactionProduce is ReadProduce for a request in a transaction, with its topic and
// number.
func ReadTransactionProduce(body []byte) (records []RecordRequest, topic string, request int64, err error) {
	c := newProduceCall(nil)
	c.txn = &inTransaction{}
	records, err = c.readRecordRequests(body)
	return records, c.txn.topic, int64(c.txn.request), err
}

func (c *produceCall) readRecordRequests(body []byte) ([]RecordRequest, error) {
	if err := c.readJSON(&http.Request{URL: &url.URL{}}, body); err != nil {
		return nil, err
	}
	var out []RecordRequest
	for i := range c.records {
		r := &c.records[i]
		one := RecordRequest{KeyBase64: r.key, Value: r.value}
		if r.partition >= 0 {
			one.Partition = &r.partition
		}
		if r.timestampMs >= 0 {
			one.TimestampMs = &r.timestampMs
		}
		if r.idempotencyKey != nil {
			key := string(r.idempotencyKey)
			one.IdempotencyKey = &key
		}
		for _, h := range r.headers {
			one.Headers = append(one.Headers, HeaderRequest{Key: h.Key, Value: h.Value})
		}
		out = append(out, one)
	}
	return out, nil
}

// SentAgain returns which records of a request in a transaction are sent again after a try
// in which some of them were lost and others refused, and whether any is.
func SentAgain(partitions []int32, lost, refused func(i int) bool) (again []bool, some bool) {
	c := newProduceCall(nil)
	c.txn = &inTransaction{}
	for i, p := range partitions {
		r := c.add()
		r.partition, r.placed = p, true
		switch {
		case lost(i):
			r.err = &lostError{errElsewhere}
		case refused(i):
			r.err = txnRefusal(kafka.ErrProducerFenced)
		}
	}
	if some = c.mayTryAgain(); some {
		c.topic = &topics.View{Meta: &metadata.Topic{Partitions: make([]metadata.Partition, 9)}}
		c.beginAgain()
	}
	for i := range c.records {
		again = append(again, some && c.records[i].isUnplaced())
	}
	return again, some
}
