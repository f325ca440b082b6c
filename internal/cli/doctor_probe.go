package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// httpPatience bounds the look for an HTTP server.
const httpPatience = time.Second

// maxProbeAnswer bounds the answer to a probe.
const maxProbeAnswer = 16 << 20

// probe asks the broker at an address which cluster it belongs to. It speaks the
// protocol itself, because the client library hides what stands at the other end
// when that is no broker.
func (a *app) probe(ctx context.Context, address string) (cluster string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", errors.New(dialReason(err))
	}
	defer conn.Close() //nolint:errcheck // Nothing is left to lose.
	if err := conn.SetDeadline(time.Now().Add(probePatience)); err != nil {
		return "", err
	}
	if a.tls != nil {
		config := a.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return "", errors.New(dialReason(err))
		}
		conn = secured
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 5 // Old enough for every broker, and it names the cluster.
	req.Topics = []kmsg.MetadataRequestTopic{}
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("strandline-doctor")).AppendRequest(nil,
		req, 1)
	if _, err := conn.Write(frame); err != nil {
		return "", errors.New(dialReason(err))
	}
	answer, err := readAnswer(conn)
	if errors.Is(err, errSilent) && speaksHTTP(address) {
		return "", strangerError("HTTP")
	}
	if err != nil {
		return "", err
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	if err := resp.ReadFrom(answer); err != nil {
		return "", fmt.Errorf("it answers, but not in the Kafka protocol: %w", err)
	}
	if resp.ClusterID == nil {
		return "", nil
	}
	return *resp.ClusterID, nil
}

// readAnswer reads a frame behind its correlation id.
func readAnswer(r io.Reader) ([]byte, error) {
	var head [8]byte
	n, err := io.ReadFull(r, head[:])
	if what := stranger(head[:n]); what != "" {
		return nil, strangerError(what)
	}
	if err != nil {
		if isTimeout(err) {
			return nil, errSilent
		}
		return nil, errors.New(dialReason(err))
	}
	size := int64(binary.BigEndian.Uint32(head[:])) - 4
	if size < 0 || size > maxProbeAnswer || binary.BigEndian.Uint32(head[4:]) != 1 {
		return nil, errors.New("it answers, but not in the Kafka protocol")
	}
	answer, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(answer)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, errors.New(dialReason(err))
	}
	return answer, nil
}

// errSilent is what stands there not answering.
const errSilent = endOfWork("it takes connections and does not answer")

// strangerError is another protocol than Kafka's.
type strangerError string

const strangerPrefix = "it speaks "

// Error implements error.
func (e strangerError) Error() string {
	return fmt.Sprintf("%s%s there, not the Kafka protocol", strangerPrefix, string(e))
}

// speaksHTTP asks whether an HTTP server stands there: it waits for the end of a
// line, which a request of Kafka's does not have.
func speaksHTTP(address string) bool {
	conn, err := net.DialTimeout("tcp", address, httpPatience)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // Nothing is left to lose.
	head := make([]byte, 4)
	err = errors.Join(
		conn.SetDeadline(time.Now().Add(httpPatience)),
		second(conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))),
		second(io.ReadFull(conn, head)),
	)
	return err == nil && stranger(head) == "HTTP"
}

func second(_ int, err error) error { return err }

// stranger recognises other protocols by their first bytes.
func stranger(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("HTTP")):
		return "HTTP"
	case len(head) >= 3 && (head[0] == 0x15 || head[0] == 0x16) && head[1] == 3:
		return "TLS"
	case bytes.HasPrefix(head, []byte("SSH-")):
		return "SSH"
	case bytes.HasPrefix(head, []byte("-ERR")):
		return "Redis' protocol"
	}
	return ""
}

// resolve looks a host up and says how long that took.
func resolve(ctx context.Context, host string) (addresses []string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	addresses, err = net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		err = errors.New(strings.ToLower(dialReason(err)))
	}
	return addresses, time.Since(began), err
}
