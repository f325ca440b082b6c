package broker_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// TestClientsAreSentElsewhereAtTheStart: a broker that waits for the other voters does not keep clients
// waiting too, which have other brokers to ask; and it serves them when the others are there.
func TestClientsAreSentElsewhereAtTheStart(t *testing.T) {
	var listeners []net.Listener
	var voters []broker.Voter
	for id := range kafka.BrokerID(3) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		voters = append(voters, broker.Voter{ID: id + 1, Address: l.Addr().String()})
	}
	start := func(i int) *voter { return runVoter(t, memfs.New(), int32(i)+1, listeners[i], voters) }
	first := start(0)
	if n, err := askVersions(t, first.ListenAddr()); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("alone, it answers with %d bytes, %v", n, err)
	}
	others := []*voter{start(1), start(2)}
	select {
	case <-first.Ready():
	case err := <-first.ended:
		t.Fatal(err)
	}
	if n, err := askVersions(t, first.ListenAddr()); n == 0 {
		t.Errorf("with the others it does not answer: %v", err)
	}
	for _, v := range append(others, first) {
		v.end(t)
	}
}

// askVersions sends ApiVersions 0 and reads what comes.
func askVersions(t *testing.T, address string) (int, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// Size, key, version, correlation id, no client id.
	if _, err := conn.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255}); err != nil {
		return 0, err
	}
	return conn.Read(make([]byte, 1024))
}
