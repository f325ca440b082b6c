package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// sized prefixes a frame with its length.
func sized(b ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func TestInvalidInputClosesTheConnection(t *testing.T) {
	header := func(key, version byte) []byte { return []byte{key >> 7, key, 0, version, 0, 0, 0, 1} }
	tagged := func(tags string) []byte {
		return sized(append(append(header(18, 2), 0xff, 0xff), tags...)...)
	}
	for _, test := range []struct {
		name string
		in   []byte
		log  string
	}{
		{"negative length", []byte{0xff, 0xff, 0xff, 0xff}, "negative length -1"},
		{"most negative length", []byte{0x80, 0, 0, 0}, "negative length -2147483648"},
		{"zero length", []byte{0, 0, 0, 0}, "frame of 0 bytes is shorter"},
		{"short length", []byte{0, 0, 0, 7, 1}, "frame of 7 bytes is shorter"},
		{"too large", []byte{0x06, 0x40, 0, 1}, "larger than socket.request.max.bytes=104857600"},
		{"unknown key", sized(append(header(99, 0), 0xff, 0xff)...), "unknown API key 99"},
		{"negative key", sized(0xff, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff), "unknown API key -1"},
		{"unknown version", frame(keyEcho, 9, 1, ""), "API key 1000 in version 9, while versions 0 to 3"},
		{"negative version", frame(keyEcho, -1, 1, ""), "version -1"},
		{"no client id", sized(header(18, 0)...), "ends early"},
		{"negative client id", sized(append(header(18, 0), 0xff, 0xfe)...), "negative length -2"},
		{"long client id", sized(append(header(18, 0), 0x7f, 0xff, 'x')...), "ends early"},
		{"no tags", sized(append(header(18, 2), 0xff, 0xff)...), "ends early"},
		{"many tags", tagged("\xff\xff\xff\xff\x0f"), "ends early"},
		{"long tag", tagged("\x01\x00\xff\xff\xff\xff\x0f"), "ends early"},
		{"endless varint", tagged(strings.Repeat("\xff", 11)), "more than 32 bits"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "an HTTP request on a Kafka listener"},
		{"HTTP/2", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "an HTTP request on a Kafka listener"},
		{"TLS", []byte{0x16, 3, 1, 2, 0, 1, 0}, "security.protocol=PLAINTEXT"},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.6\r\n"), "an SSH client"},
		{"AMQP", []byte("AMQP\x00\x00\x09\x01"), "an AMQP client"},
		{"Redis", []byte("*1\r\n$4\r\nPING\r\n"), "a Redis client"},
		{"SMTP", []byte("EHLO localhost\r\n"), "a line protocol"},
		{"asked for", frame(keyClose, 0, 1, ""), "the test asked for it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
			b.start()
			c := b.dial()
			go func() { _, _ = c.Write(test.in) }()
			c.expectClosed()
			b.stop()
			<-b.stopped
			if log := b.log.String(); !strings.Contains(log, test.log) || strings.Count(log, "\n") != 1 {
				t.Errorf("log %q, want one line with %q", log, test.log)
			}
		})
	}
}

func TestLogOfInvalidInputIsLimited(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		garbage := func() {
			c := b.dial()
			c.write([]byte("GET / HTTP/1.1\r\n\r\n"))
			c.expectClosed()
		}
		for range 100 {
			garbage()
		}
		pass(2 * logPause)
		garbage()
		pass(logPause)
		log := b.log.String()
		if n := strings.Count(log, "\n"); n != 2 {
			t.Errorf("%d lines", n)
		}
		if !strings.Contains(log, "suppressed=99") {
			t.Errorf("log %q does not count the lines left out", log)
		}
	})
}

func TestEarlierAnswersAreSentBeforeAClose(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		b.start()
		in := append(frame(keyPark, 0, 1, "first"), frame(keyEcho, 0, 2, "second")...)
		for _, last := range [][]byte{frame(keyClose, 0, 3, ""), {0x80, 0, 0, 0}, frame(99, 0, 3, "")} {
			c := b.dial()
			c.write(append(bytes.Clone(in), last...))
			b.next().finish()
			c.expect(1, "first")
			c.expect(2, "second")
			c.expectClosed()
		}
	})
}

func TestUnknownVersionOfAPIVersionsIsAnswered(t *testing.T) {
	b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
	b.start()
	c := b.dial()
	c.write(frame(keyAPIs, 3, 1, "body")) // Flexible, but its answer has no tags.
	c.expect(1, "body")
	for _, version := range []int16{4, 100, -1} {
		c.write(frame(keyAPIs, version, 2, "body"))
		c.expect(2, "unsupported")
	}
	// Neither does it matter what follows the prefix.
	c.write(sized(0, 18, 0, 99, 0, 0, 0, 7))
	c.expect(7, "unsupported")
}

func TestFlexibleHeaders(t *testing.T) {
	b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
	b.start()
	c := b.dial()
	// Key 1000, version 2, a null client id, two tagged fields.
	c.write(sized(3, 0xe8, 0, 2, 0, 0, 0, 5, 0xff, 0xff, 2, 7, 3, 'a', 'b', 'c', 9, 0, 'x', 'y'))
	c.expect(5, "\x00xy") // The answer's own tags come first.
}

func TestDecodeTurnsAPanicIntoAnError(t *testing.T) {
	err := wire.Decode(func() error {
		var empty []byte
		_ = empty[len(empty)]
		return nil
	})
	var p *wire.PanicError
	if !errors.As(err, &p) || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("got %v", err)
	}
	err = wire.Decode(func() error { return io.ErrUnexpectedEOF })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}
