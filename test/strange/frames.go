package strange

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/strandline/strandline/internal/peer"
)

// Frames sends what is no request, or only a part of one, on connections of its own until
// ctx ends.
func Frames(ctx context.Context, r *rand.Rand, addr string) {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		frame(r, conn)
		_ = conn.Close()
	}
}

// frame writes one odd frame.
func frame(r *rand.Rand, conn net.Conn) {
	keys := []int16{0, 1, 3, 11, 18, 19, 61, 62, 63, peer.RaftKey, peer.TunnelKey}
	m := maker{Rand: r}
	body := m.noise(r.IntN(300))
	if r.IntN(20) == 0 {
		body = m.noise(1 << 20)
	}
	head := binary.BigEndian.AppendUint16(nil, uint16(keys[r.IntN(len(keys))]))
	head = binary.BigEndian.AppendUint16(head, uint16(r.IntN(16)))
	head = binary.BigEndian.AppendUint32(head, r.Uint32())
	head = append(head, 0, 0) // An empty client id.
	body = append(head, body...)
	length := uint32(len(body))
	if r.IntN(3) == 0 {
		length = []uint32{0, 1, 7, math.MaxInt32, math.MaxUint32, 1 << 31, 72 << 20, 100 << 20, length + 1, length - 1}[r.IntN(10)]
	}
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, length), body...))
	if r.IntN(4) == 0 {
		return // Without reading.
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(100)) * time.Millisecond))
	_, _ = conn.Read(make([]byte, 1<<10))
}
