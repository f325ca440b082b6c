package peer_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// host is a broker's cluster listener with a table of its own.
type host struct {
	t       testing.TB
	address string
	cancel  context.CancelFunc
	ended   chan struct{}
}

// listen serves a table on an address until stop, or the end of the test.
func listen(t testing.TB, network netx.Network, address string, log *slog.Logger, apis ...wire.API) *host {
	t.Helper()
	l, err := network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	table := map[int16]wire.API{}
	for _, a := range apis {
		table[a.Key] = a
	}
	table[18] = versions(apis)
	limits := wire.DefaultLimits()
	limits.Grace = 0
	server, err := wire.New(wire.Options{
		Listeners: []wire.Listener{{Name: "CLUSTER", Listener: l}},
		APIs: func(key int16) (wire.API, bool) {
			a, ok := table[key]
			return a, ok
		},
		Limits: limits, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &host{t: t, address: l.Addr().String(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		if err := server.Run(ctx); err != nil {
			t.Errorf("server on %s: %v", address, err)
		}
	}()
	t.Cleanup(h.stop)
	return h
}

// stop closes the listener and all its connections.
func (h *host) stop() {
	h.cancel()
	<-h.ended
}

// versions answers ApiVersions for a table.
func versions(apis []wire.API) wire.API {
	return wire.API{
		Name: "ApiVersions", Key: 18, Min: 0, Max: 0, FlexibleFrom: 3,
		Handle: func(context.Context, *wire.Request) wire.Response {
			resp := kmsg.NewPtrApiVersionsResponse()
			for _, a := range apis {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{
					ApiKey: a.Key, MinVersion: a.Min, MaxVersion: a.Max,
				})
			}
			return &reply{resp: resp, ready: closed()}
		},
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// reply is an answer that is done when ready is closed.
type reply struct {
	resp  kmsg.Response
	ready chan struct{}
}

func (r *reply) Done() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

func (*reply) Deadline() time.Time { return time.Time{} }

func (r *reply) Encode(w *wire.Writer) error {
	if r.resp != nil {
		w.Append(r.resp.AppendTo)
	}
	return nil
}

// echo answers InitProducerID with the timeout asked for, in versions up to max.
func echo(maxVersion int16) wire.API {
	return wire.API{
		Name: "InitProducerId", Key: 22, Min: 0, Max: maxVersion, FlexibleFrom: 2,
		Handle: func(_ context.Context, r *wire.Request) wire.Response {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.SetVersion(r.Version)
			if err := req.ReadFrom(r.Body); err != nil {
				return wire.Close(err.Error())
			}
			resp := kmsg.NewPtrInitProducerIDResponse()
			resp.SetVersion(r.Version)
			resp.ProducerID, resp.ProducerEpoch = int64(req.TransactionTimeoutMillis), r.Version
			return &reply{resp: resp, ready: closed()}
		},
	}
}

// park answers Heartbeat when the test closes what it gets from the channel.
func park(parked chan<- chan struct{}) wire.API {
	return wire.API{
		Name: "Heartbeat", Key: 12, Min: 0, Max: 4, FlexibleFrom: 4,
		Handle: func(_ context.Context, r *wire.Request) wire.Response {
			resp := kmsg.NewPtrHeartbeatResponse()
			resp.SetVersion(r.Version)
			ready := make(chan struct{})
			done := make(chan struct{})
			// Ends when the test is done with the request.
			go func() {
				<-done
				close(ready)
				r.Wake()
			}()
			parked <- done
			return &reply{resp: resp, ready: ready}
		},
	}
}
