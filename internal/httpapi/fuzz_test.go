package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/strictjson"
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
		records := req.Records
		if records == nil {
			records = []httpapi.RecordRequest{req.RecordRequest}
		}
		for i := range records {
			plain(&records[i])
		}
		if diff := cmp.Diff(records, got); diff != "" {
			t.Fatalf("(-type +read):\n%s", diff)
		}
	})
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
