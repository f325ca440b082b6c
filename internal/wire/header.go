package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// lengthBytes is the size of the length before each frame.
const lengthBytes = 4

// minRequestBytes is the shortest frame: key, version, correlation id.
const minRequestBytes = 8

// header is a request's header.
//
//	v1  key int16 | version int16 | correlation id int32 | client id, nullable string
//	v2  the same, then tagged fields
type header struct {
	key, version  int16
	correlationID int32
	clientID      []byte // Aliases the frame; nil for null.
}

var errShortHeader = errors.New("request header ends early")

// readPrefix reads what every version of the header begins with.
func readPrefix(frame []byte) (h header, rest []byte, err error) {
	if len(frame) < minRequestBytes {
		return h, nil, errShortHeader
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	return h, frame[minRequestBytes:], nil
}

// readRest reads the client id and, in a flexible header, skips the tagged
// fields: none is known. It returns the request's body.
func (h *header) readRest(rest []byte, flexible bool) (body []byte, err error) {
	if len(rest) < 2 {
		return nil, errShortHeader
	}
	n := int(int16(binary.BigEndian.Uint16(rest)))
	rest = rest[2:]
	switch {
	case n < -1:
		return nil, fmt.Errorf("client id of negative length %d", n)
	case n > len(rest):
		return nil, errShortHeader
	case n >= 0:
		h.clientID, rest = rest[:n:n], rest[n:]
	}
	if flexible {
		return skipTags(rest)
	}
	return rest, nil
}

// skipTags skips a section of tagged fields.
func skipTags(b []byte) ([]byte, error) {
	count, b, err := readUvarint(b)
	if err != nil {
		return nil, err
	}
	for ; count > 0; count-- {
		var size uint32
		if _, b, err = readUvarint(b); err != nil {
			return nil, err
		}
		if size, b, err = readUvarint(b); err != nil {
			return nil, err
		}
		if uint64(size) > uint64(len(b)) {
			return nil, errShortHeader
		}
		b = b[size:]
	}
	return b, nil
}

// readUvarint reads an unsigned varint of at most 32 bits.
func readUvarint(b []byte) (uint32, []byte, error) {
	v, n := binary.Uvarint(b)
	if n == 0 {
		return 0, nil, errShortHeader
	}
	if n < 0 || v > 1<<32-1 {
		return 0, nil, errors.New("varint of more than 32 bits in a request header")
	}
	return uint32(v), b[n:], nil
}

// appendResponseHeader appends a response header with room for the length in
// front.
func appendResponseHeader(dst []byte, correlationID int32, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// foreignProtocol guesses what speaks, from the first bytes of a connection, in
// words that tell an operator what to change. It returns "" if it can't.
func foreignProtocol(first []byte) string {
	if len(first) >= 3 && first[0] == 0x16 && first[1] == 3 && first[2] <= 4 {
		return "a TLS handshake on a listener without TLS: " +
			"set security.protocol=PLAINTEXT in the client, or connect to a TLS listener " +
			"(between brokers: give all of them --cluster-tls-cert, or none)"
	}
	if len(first) < 4 {
		return ""
	}
	switch string(first[:4]) {
	case "GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "PATC", "CONN", "PRI ", "TRAC":
		return "an HTTP request on a Kafka listener: " +
			"the HTTP API listens on an address of its own (--http-listen)"
	case "SSH-":
		return "an SSH client on a Kafka listener"
	case "AMQP":
		return "an AMQP client on a Kafka listener"
	case "PING", "*1\r\n", "*2\r\n", "*3\r\n":
		return "a Redis client on a Kafka listener"
	case "EHLO", "HELO", "QUIT", "USER", "NICK":
		return "a line protocol on a Kafka listener"
	}
	return ""
}
