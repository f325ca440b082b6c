package peer_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/peer"
)

// A tunnel leads to the broker that is meant, of the cluster that is meant, and
// carries what both sides like; any other is refused with the reason.
func TestTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := netx.NewMemory()
		taken := make(chan net.Conn, 1)
		var closed error
		h := listen(t, memory.Host(serverIP), address, slog.New(slog.DiscardHandler), peer.TunnelAPI(
			2, func() string { return "ours" }, func() error { return closed }, func(c net.Conn) { taken <- c },
		))
		defer h.stop()
		pool := peer.NewPool(func(id kafka.BrokerID) (string, bool) { return address, id == 2 || id == 3 },
			peer.Options{Network: memory.Host(clientIP)})
		defer func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, c := range []struct {
			to        kafka.BrokerID
			clusterID string
			says      string
		}{
			{2, "theirs", `belongs to cluster "ours"`},
			{3, "ours", "this is broker 2, not 3"},
			{4, "ours", "its address is not known"},
		} {
			if _, err := pool.Tunnel(t.Context(), 1, c.to, c.clusterID); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		closed = errors.New("the broker is stopping")
		var refused *peer.RefusedError
		if _, err := pool.Tunnel(t.Context(), 1, 2, "ours"); !errors.As(err, &refused) || refused.Code != kafka.ErrBrokerNotAvailable {
			t.Errorf("%v", err)
		}
		closed = nil
		near, err := pool.Tunnel(t.Context(), 1, 2, "ours")
		if err != nil {
			t.Fatal(err)
		}
		far := <-taken
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			if _, err := io.WriteString(way[0], "hello"); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 5)
			if _, err := io.ReadFull(way[1], b); err != nil || string(b) != "hello" {
				t.Errorf("%q %v", b, err)
			}
		}
		_, _ = near.Close(), far.Close()
	})
}
