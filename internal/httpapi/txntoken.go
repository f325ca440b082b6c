package httpapi

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"unicode/utf8"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// tokenVersion is the first byte of a token.
const tokenVersion = 1

// maxTransactionalID bounds the transactional ids of this API, which stand in paths.
const maxTransactionalID = 512

// tokenOf returns what a transaction goes by. All that there is to know of it is in the
// token or in the logs, so any node takes any request about it, and none of them has
// anything to lose:
//
//	byte 0        tokenVersion
//	bytes 1-8     the producer id, big-endian
//	bytes 9-10    the producer epoch
//	bytes 11-     the transactional id
//
// in base64 for URLs. Whoever has it may go on with the transaction, as a Kafka client
// may that has these three; it is no secret to keep others out.
func tokenOf(p txn.Producer) string {
	b := []byte{tokenVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(p.PID))
	b = binary.BigEndian.AppendUint16(b, uint16(p.Epoch))
	return base64.RawURLEncoding.EncodeToString(append(b, p.ID...))
}

// readToken is the inverse of tokenOf.
func readToken(token string) (p txn.Producer, ok bool) {
	const fixed = 1 + 8 + 2
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) <= fixed || len(b) > fixed+maxTransactionalID || b[0] != tokenVersion {
		return p, false
	}
	p = txn.Producer{
		ID:    string(b[fixed:]),
		PID:   kafka.ProducerID(binary.BigEndian.Uint64(b[1:])),
		Epoch: kafka.ProducerEpoch(binary.BigEndian.Uint16(b[9:])),
	}
	return p, p.PID >= 0 && p.Epoch >= 0 && utf8.ValidString(p.ID)
}

// transactionOf reads the transaction that a request's path names.
func transactionOf(r *http.Request) (txn.Producer, error) {
	token := r.PathValue("transaction")
	p, ok := readToken(token)
	if !ok {
		return p, refuse(http.StatusNotFound, kafka.ErrTransactionalIDNotFound,
			"%q is no transaction: POST /v1/transactions answers with one", clip(token))
	}
	return p, nil
}
