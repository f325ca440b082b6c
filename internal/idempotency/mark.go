package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/strandline/strandline/internal/record"
)

// The headers that a record with an idempotency key has as its last two.
const (
	KeyHeader  = "strandline.idempotency-key"  // The key, as the client gave it.
	HashHeader = "strandline.idempotency-hash" // markVersion and a Digest of the content.
)

// MarkHeaders is how many those are.
const MarkHeaders = 2

// MaxKeyBytes is the longest key.
const MaxKeyBytes = 255

// markVersion is the first byte of a HashHeader.
const markVersion = 1

// markSize is the length of a HashHeader.
const markSize = 1 + len(Digest{})

// Digest is the first half of a SHA-256: what is compared instead of keys and
// contents, which are long.
type Digest [16]byte

// DigestKey returns the digest of a key.
func DigestKey(key []byte) Digest {
	sum := sha256.Sum256(key)
	return Digest(sum[:16])
}

// DigestContent returns the digest of what a retry must repeat: the record's key,
// its value and its headers, but for those of the mark. Timestamp and partition
// may differ: clients that name them may compute them anew.
func DigestContent(key, value []byte, headers []record.Header) Digest {
	h := sha256.New()
	var scratch [binary.MaxVarintLen64]byte
	digestNullable(h, scratch[:0], key)
	digestNullable(h, scratch[:0], value)
	for _, x := range headers {
		digestNullable(h, scratch[:0], []byte(x.Key))
		digestNullable(h, scratch[:0], x.Value)
	}
	var sum [sha256.Size]byte
	return Digest(h.Sum(sum[:0])[:16])
}

// digestNullable adds bytes with their length in front, -1 for null, so that no
// two contents read the same.
func digestNullable(h hash.Hash, scratch, p []byte) {
	length := int64(len(p))
	if p == nil {
		length = -1
	}
	h.Write(binary.AppendVarint(scratch, length))
	h.Write(p)
}

// AppendMark appends the mark of a record to its headers. It keeps key.
func AppendMark(headers []record.Header, key []byte, content Digest) []record.Header {
	value := make([]byte, 0, markSize)
	value = append(append(value, markVersion), content[:]...)
	return append(headers, record.Header{Key: KeyHeader, Value: key}, record.Header{Key: HashHeader, Value: value})
}

// ReadMark returns the digests of a record's key and content if it has a mark. A
// mark that does not fit the record's content is somebody else's doing and none.
func ReadMark(r *record.Record) (key, content Digest, ok bool) {
	n := len(r.Headers) - 2
	if n < 0 || r.Headers[n].Key != KeyHeader || r.Headers[n+1].Key != HashHeader {
		return Digest{}, Digest{}, false
	}
	mark := r.Headers[n+1].Value
	if len(mark) != markSize || mark[0] != markVersion {
		return Digest{}, Digest{}, false
	}
	content = DigestContent(r.Key, r.Value, r.Headers[:n])
	if content != Digest(mark[1:]) {
		return Digest{}, Digest{}, false
	}
	return DigestKey(r.Headers[n].Value), content, true
}

// Reserved says whether a header's name is one of the mark's.
func Reserved(header string) bool { return header == KeyHeader || header == HashHeader }
