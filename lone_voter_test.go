package strandline_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/kafka"
)

// TestVoterForALoneBroker: a client that asks a broker without a cluster listener to
// add a voter is refused in words. The broker lives, and starts again.
func TestVoterForALoneBroker(t *testing.T) {
	config := strandline.Config{DataDir: filepath.Join(t.TempDir(), "data")}
	for range 2 {
		srv, err := strandline.Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		cl := client(t, srv.Addr(), kgo.AllowAutoTopicCreation())
		for _, id := range []int32{2, 16843009, -1, -2} {
			req := kmsg.NewPtrAddRaftVoterRequest()
			req.VoterID, req.TimeoutMillis = id, 5_000
			resp, err := req.RequestWith(t.Context(), cl)
			if err != nil {
				t.Fatal(err)
			}
			if kafka.Code(resp.ErrorCode) != kafka.ErrInvalidRequest || resp.ErrorMessage == nil ||
				id > 0 && !strings.Contains(*resp.ErrorMessage, "--cluster-listen") {
				t.Errorf("voter %d: %+v", id, resp)
			}
			remove := kmsg.NewPtrRemoveRaftVoterRequest()
			remove.VoterID = id
			if removed, err := remove.RequestWith(t.Context(), cl); err != nil || kafka.Code(removed.ErrorCode) != kafka.ErrVoterNotFound {
				t.Errorf("remove voter %d: %+v, %v", id, removed, err)
			}
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
