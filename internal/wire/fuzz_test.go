package wire_test

import (
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/netx"
)

// FuzzConnection feeds arbitrary bytes to a connection: it must answer or close,
// and give all memory back.
func FuzzConnection(f *testing.F) {
	f.Add(frame(keyEcho, 0, 1, "body"))
	f.Add(append(frame(keyEcho, 3, 1, "body"), frame(keyMute, 0, 2, "")...))
	f.Add(append(frame(keyAPIs, 99, 1, ""), frame(keyClose, 0, 2, "")...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0x80, 0, 0, 0, 1, 2, 3})
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client"))
	for key := range int16(75) {
		if req := kmsg.RequestForKey(key); req != nil {
			req.SetVersion(req.MaxVersion())
			f.Add(formatter.AppendRequest(nil, req, 1))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
		b.options.Limits.MaxRequestBytes = 1 << 20
		b.start()
		c := b.dial()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(io.Discard, c)
		}()
		_, _ = c.Write(in)
		_ = c.Close()
		<-done
		b.stop()
		<-b.stopped
		if st := b.server.Stats(); st.QueuedBytes != 0 || st.Connections != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
}

// FuzzRequest sends a request that kmsg encoded: what arrives must be what was
// sent.
func FuzzRequest(f *testing.F) {
	f.Add(int32(1), "client", true, []byte("body"), false)
	f.Add(int32(-1), "", false, []byte{}, true)
	f.Fuzz(func(t *testing.T, id int32, clientID string, hasID bool, body []byte, flexible bool) {
		if len(clientID) > 1<<15-1 || len(body) > 1<<16 {
			return
		}
		formatter := kmsg.NewRequestFormatter()
		if hasID {
			formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
		}
		req := &rawRequest{body: body, flexible: flexible}
		b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
		b.start()
		c := b.dial()
		c.write(formatter.AppendRequest(nil, req, id))
		want := string(body)
		if flexible {
			want = "\x00" + want
		}
		c.expect(id, want)
		b.stop()
		<-b.stopped
	})
}

// rawRequest is an echo request as kmsg sees it.
type rawRequest struct {
	body     []byte
	flexible bool
}

func (r *rawRequest) Key() int16                  { return keyEcho }
func (r *rawRequest) MaxVersion() int16           { return 3 }
func (r *rawRequest) SetVersion(int16)            {}
func (r *rawRequest) IsFlexible() bool            { return r.flexible }
func (r *rawRequest) AppendTo(dst []byte) []byte  { return append(dst, r.body...) }
func (r *rawRequest) ReadFrom([]byte) error       { return nil }
func (r *rawRequest) ResponseKind() kmsg.Response { return nil }
func (r *rawRequest) GetVersion() int16 {
	if r.flexible {
		return flexibleFrom
	}
	return 0
}
