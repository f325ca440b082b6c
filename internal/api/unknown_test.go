package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// lastKey is the last key of the protocol that Apache Kafka 4.4 knows.
const lastKey = 94

// emptyRequest is a request of any key and version, with a body of zeroes.
type emptyRequest struct {
	kmsg.Request
	key, version int16
	flexible     bool
}

func (r *emptyRequest) Key() int16                 { return r.key }
func (r *emptyRequest) GetVersion() int16          { return r.version }
func (r *emptyRequest) IsFlexible() bool           { return r.flexible }
func (r *emptyRequest) AppendTo(dst []byte) []byte { return append(dst, make([]byte, 20)...) }

// TestUnknownVersions: a version that is not spoken ends the connection, with a
// log line that names the request and the versions that are; but for ApiVersions,
// which is answered in version 0 so that any client can learn what to speak
// (KIP-511).
func TestUnknownVersions(t *testing.T) {
	w := startWorld(t)
	for key := range int16(lastKey + 1) {
		row, known := w.table[key]
		versions := []int16{-1, 1, 30, 32767}
		if known {
			versions = []int16{-1, row.Min - 1, row.Max + 1, 32767}
		}
		for _, version := range versions {
			c := w.connect()
			id := c.send(&emptyRequest{key: key, version: version, flexible: true})
			if key == int16(kmsg.ApiVersions) {
				_, body, err := c.receiveFrame()
				w.must(err)
				resp := kmsg.NewPtrApiVersionsResponse()
				w.must(decodeExactly(resp, body))
				if kafka.Code(resp.ErrorCode) != kafka.ErrUnsupportedVersion || len(resp.ApiKeys) != len(w.table) {
					t.Errorf("ApiVersions version %d: %s with %d keys", version, kafka.Code(resp.ErrorCode), len(resp.ApiKeys))
				}
				delete(c.sent, id)
				continue
			}
			c.expectClosed()
			reason := (<-w.closed).Error()
			want := fmt.Sprintf("unknown API key %d", key)
			if known {
				want = fmt.Sprintf("%s request of API key %d in version %d, while versions %d to %d",
					row.Name, key, version, row.Min, row.Max)
			}
			if !strings.Contains(reason, want) {
				t.Errorf("key %d version %d: closed because of %q, want %q", key, version, reason, want)
			}
		}
	}
}

// TestRebootstrap: a client that believes to talk to another cluster or another
// broker is told to start over from its bootstrap addresses (KIP-1242).
func TestRebootstrap(t *testing.T) {
	w := startWorld(t)
	c := w.connect()
	cluster, other := "cluster", "another"
	for _, x := range []struct {
		cluster *string
		node    int32
		want    kafka.Code
	}{
		{nil, -1, kafka.ErrNone},
		{&cluster, -1, kafka.ErrNone},
		{&cluster, 1, kafka.ErrNone},
		{nil, 1, kafka.ErrNone},
		{&other, -1, kafka.ErrRebootstrapRequired},
		{&other, 1, kafka.ErrRebootstrapRequired},
		{&cluster, 2, kafka.ErrRebootstrapRequired},
		{nil, 2, kafka.ErrRebootstrapRequired},
	} {
		for version := int16(0); version <= 5; version++ {
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version, req.ClusterID, req.NodeID = version, x.cluster, x.node
			req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
			want := kafka.ErrNone
			if version == 5 {
				want = x.want
			}
			resp := c.ask(req).(*kmsg.ApiVersionsResponse)
			if got := kafka.Code(resp.ErrorCode); got != want {
				t.Errorf("version %d, cluster %q, node %d: %s, want %s", version, text(x.cluster), x.node, got, want)
			}
		}
	}
}
