package httpapi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/strictjson"
	"github.com/strandline/strandline/internal/txn"
)

// FuzzProduce: a request that is read in place means what its type says.
func FuzzProduce(f *testing.F) {
	for _, s := range []string{
		`{"key":"k","value":"QQ==","acks":"all","idempotency_key":"id"}`,
		`{"records":[{"value":null,"partition":3,"timestamp_ms":5},{"value_text":"\u00e9","key_base64":"AA=="}],"timeout_ms":5,"acks":"1"}`,
		`{"value_text":"a","headers":[{"key":"h","value":"QQ=="},{"key":"","value_text":null},{"key":"x","value_text":"\n"}]}`,
		`{"key":null,"value_text":null,"headers":[]}`, `{"records":[]}`, `{"value":"QQ==","value_text":"x"}`,
		`{"value_text":""}`, // Once a tombstone.
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := httpapi.ReadProduce(body)
		if err != nil {
			return
		}
		var req httpapi.ProduceRequest
		if err := strictjson.Decode(body, &req); err != nil {
			t.Fatalf("the type says %v", err)
		}
		compareRecords(t, req.Records, req.RecordRequest, got)
	})
}

// FuzzTransactionProduce: the same for a request in a transaction.
func FuzzTransactionProduce(f *testing.F) {
	for _, s := range []string{
		`{"topic":"t","request":0,"key":"k","value":"QQ==","timeout_ms":7}`,
		`{"request":131071,"records":[{"value":null,"partition":3,"timestamp_ms":5},{"value_text":"\u00e9","key_base64":"AA=="}],"topic":""}`,
		`{"topic":"t","request":1,"value_text":"a","headers":[{"key":"h","value":"QQ=="}]}`,
		`{"topic":"t","value_text":"a"}`, `{"request":0,"value_text":"a"}`, `{"topic":"t","request":131072,"value_text":"a"}`,
		`{"topic":"t","request":0,"value_text":"a","acks":"all"}`, `{"topic":"t","request":0,"value_text":"a","idempotency_key":"i"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, topic, request, err := httpapi.ReadTransactionProduce(body)
		if err != nil {
			return
		}
		var req httpapi.TransactionProduceRequest
		if err := strictjson.Decode(body, &req); err != nil {
			t.Fatalf("the type says %v", err)
		}
		if topic != req.Topic || request != req.Request {
			t.Fatalf("read topic %q, request %d; the type says %q, %d", topic, request, req.Topic, req.Request)
		}
		compareRecords(t, req.Records, req.RecordRequest, got)
	})
}

// FuzzTransactionToken: what is read as a token is one, and of no other transaction.
func FuzzTransactionToken(f *testing.F) {
	for _, p := range []txn.Producer{{ID: "billing-1"}, {ID: "\u00e9", PID: 1<<63 - 1, Epoch: 1<<15 - 2}, {ID: strings.Repeat("x", 513)}} {
		f.Add(httpapi.TokenOf(p))
	}
	for _, s := range []string{"", "AQ", "AQAAAAAAAAAAAAA", "AQAAAAAAAAAAAABiaWxsaW5nLTF", "AgAAAAAAAAAAAABiaWxsaW5nLTE", "AQAAAAAAAAAAAABiaWxsaW5nLTE="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := httpapi.ReadToken(text)
		if ok && (httpapi.TokenOf(p) != text || p.ID == "" || p.PID < 0 || p.Epoch < 0) {
			t.Fatalf("%q is read as %+v, whose token is %q", text, p, httpapi.TokenOf(p))
		}
	})
}

// compareRecords holds what was read in place against what the type says.
func compareRecords(t *testing.T, records []httpapi.RecordRequest, single httpapi.RecordRequest, got []httpapi.RecordRequest) {
	t.Helper()
	if records == nil {
		records = []httpapi.RecordRequest{single}
	}
	for i := range records {
		plain(&records[i])
	}
	if diff := cmp.Diff(records, got); diff != "" {
		t.Fatalf("(-type +read):\n%s", diff)
	}
}

// plain writes text as bytes, as ReadProduce does.
func plain(r *httpapi.RecordRequest) {
	if r.Key != nil {
		r.KeyBase64, r.Key = []byte(*r.Key), nil
	}
	if r.ValueText != nil {
		r.Value, r.ValueText = []byte(*r.ValueText), nil
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		if h.ValueText != nil {
			h.Value, h.ValueText = []byte(*h.ValueText), nil
		}
	}
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
}
