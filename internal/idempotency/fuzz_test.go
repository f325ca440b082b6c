package idempotency_test

import (
	"testing"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/record"
)

// FuzzMark: headers of strangers are a mark only if they are exactly the one that the
// content asks for.
func FuzzMark(f *testing.F) {
	content := idempotency.DigestContent([]byte("k"), []byte("v"), []record.Header{{Key: "h", Value: []byte("x")}})
	good := idempotency.AppendMark(nil, []byte("id"), content)[1].Value
	f.Add([]byte("k"), []byte("v"), "h", []byte("x"), []byte("id"), good)
	f.Add([]byte(nil), []byte(nil), "", []byte(nil), []byte(nil), []byte{1})
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header, id, hash []byte) {
		headers := []record.Header{{Key: name, Value: header}}
		r := record.Record{Key: key, Value: value, Headers: append(headers[:1:1],
			record.Header{Key: idempotency.KeyHeader, Value: id}, record.Header{Key: idempotency.HashHeader, Value: hash})}
		got, content, ok := idempotency.ReadMark(&r)
		made := idempotency.AppendMark(headers[:1:1], id, idempotency.DigestContent(key, value, headers))
		if same := string(made[2].Value) == string(hash); ok != same {
			t.Fatalf("it is taken for a mark: %t, and it is one: %t", ok, same)
		}
		if ok && (got != idempotency.DigestKey(id) || content != idempotency.DigestContent(key, value, headers)) {
			t.Fatalf("read as %x %x", got, content)
		}
		r.Headers = made
		if _, _, ok := idempotency.ReadMark(&r); !ok {
			t.Fatal("a mark is not read back")
		}
	})
}
