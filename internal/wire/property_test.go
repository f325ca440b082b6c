package wire_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/netx"
)

// TestAnyTrafficIsAnsweredInOrder sends random requests, cut at random places,
// and makes parked answers ready in a random order.
func TestAnyTrafficIsAnsweredInOrder(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		b.options.Limits.MaxPipelined = 10
		b.options.Limits.MaxQueuedBytes = 200_000
		b.start()
		rapid.Check(t, func(rt *rapid.T) {
			c := b.dial()
			defer c.Close()
			kinds := rapid.SampledFrom([]int16{keyEcho, keyPark, keyPoll, keyHold, keyMute})
			keys := rapid.SliceOfN(kinds, 1, 60).Draw(rt, "keys")
			var in []byte
			var want []string
			parked := 0
			for i, key := range keys {
				size := rapid.SampledFrom([]int{0, 1, 100, 5000, 20_000}).Draw(rt, "size")
				body := fmt.Sprint(i, strings.Repeat("x", size))
				in = append(in, frame(key, 0, int32(i), body)...)
				if key != keyMute {
					want = append(want, body)
				}
				if key != keyMute && key != keyEcho {
					parked++
				}
			}
			cuts := rapid.SliceOfN(rapid.IntRange(1, 30_000), 1, 10).Draw(rt, "cuts")
			seed := rapid.Uint64().Draw(rt, "seed")
			var group sync.WaitGroup
			defer group.Wait()
			group.Go(func() { writeInPieces(c, in, cuts) })
			group.Go(func() { finishShuffled(b, parked, seed) })
			for _, body := range want {
				if _, got := c.receive(); got != body {
					rt.Fatalf("got %.10q of %d bytes, want %.10q of %d", got, len(got), body, len(body))
				}
			}
		})
	})
}

func writeInPieces(c *client, in []byte, cuts []int) {
	for i := 0; len(in) > 0; i++ {
		n := min(cuts[i%len(cuts)], len(in))
		if _, err := c.Write(in[:n]); err != nil {
			return
		}
		in = in[n:]
	}
}

// finishShuffled finishes n answers, a few that are under way at a time, in an
// order of its own.
func finishShuffled(b *broker, n int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	var held []*answer
	for n > 0 || len(held) > 0 {
		switch {
		case n > 0 && len(held) == 0:
			held = append(held, b.next())
			n--
			continue
		case n > 0 && random.IntN(2) == 0:
			select {
			case a := <-b.parked:
				held = append(held, a)
				n--
				continue
			default:
			}
		}
		i := random.IntN(len(held))
		held[i].finish()
		held = append(held[:i], held[i+1:]...)
	}
}
