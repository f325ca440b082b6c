package strandline_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/certs/certstest"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/strandlinetest"
)

// sharedLog is a log to look into while it is written.
type sharedLog struct{ logtest.Log }

// await waits for a line with all of the words.
func (l *sharedLog) await(t *testing.T, words ...string) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-ticker.C {
		for line := range strings.Lines(l.String()) {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no line with %q in\n%s", words, l)
		}
	}
}

func (l *sharedLog) option(c *strandline.Config) {
	c.Logger = slog.New(slog.NewTextHandler(l, nil)).With("node", c.NodeID)
}

// withTLS encrypts what clients speak, and with a CA asks them for certificates.
func withTLS(f certs.Files) strandlinetest.Option {
	return func(c *strandline.Config) { c.TLS = strandline.TLSFiles(f) }
}

func withClusterTLS(f certs.Files) strandlinetest.Option {
	return func(c *strandline.Config) { c.ClusterTLS = strandline.TLSFiles(f) }
}

// roundTrip produces records, small ones and large, and reads them back.
func roundTrip(t *testing.T, config *tls.Config, brokers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	cl, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	want := map[string]bool{}
	for i := range 20 {
		value := fmt.Sprint(i, strings.Repeat("x", 40_000*(i%3)))
		want[value] = true
		if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for len(want) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			delete(want, string(r.Value))
		}
	}
}

// A client with a connection too many over HTTPS is told so, as far as it shakes hands.
func TestTLSTurnsAwayInWords(t *testing.T) {
	ca, log := certstest.New(t), &sharedLog{}
	files := ca.Issue([]string{"127.0.0.1"})
	files.CA = ""
	srv := strandlinetest.Start(t, withTLS(files), strandlinetest.WithHTTP(), log.option,
		strandlinetest.WithSetting("max.connections.per.ip", "2"))
	dial := func() *tls.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", srv.HTTPAddr(), &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) string {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
	for range 2 {
		if got := ask(dial()); got != "200  ok\n" {
			t.Fatalf("got %s", got)
		}
	}
	for range 3 {
		if got := ask(dial()); !strings.HasPrefix(got, "429 1 ") || !strings.Contains(got, "max.connections.per.ip") {
			t.Errorf("a connection too many is answered with %s", got)
		}
	}
	log.await(t, "HTTP connection refused", "limit=max.connections.per.ip")
	// One that says nothing, and one that speaks no TLS, are closed.
	for _, say := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", srv.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %q the connection stays", say)
		}
	}
}

// A broker with a certificate serves Kafka clients and HTTP over TLS, and says what is
// wrong with those who come without.
func TestTLS(t *testing.T) {
	ca, log := certstest.New(t), &sharedLog{}
	files := ca.Issue([]string{"127.0.0.1"})
	open := files
	open.CA = ""
	srv := strandlinetest.Start(t, withTLS(open), strandlinetest.WithHTTP(), log.option)
	roundTrip(t, &tls.Config{RootCAs: ca.Pool()}, srv.Addr())

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
	defer client.CloseIdleConnections()
	for range 2 { // On one connection, by the express lane.
		resp, err := client.Post("https://"+srv.HTTPAddr()+"/v1/topics/t/produce", "application/json",
			strings.NewReader(`{"value_text":"over https"}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s, %v", resp.Status, answer, err)
		}
	}
	resp, err := http.Get("http://" + srv.HTTPAddr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), "https") {
		t.Errorf("over http: %s %q, %v", resp.Status, answer, err)
	}
	log.await(t, "HTTPS connection closed")

	plain, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Ping(t.Context()); err == nil {
		t.Error("a client without TLS is served")
	}
	log.await(t, "reason=handshake", "security.protocol=SSL")
}

// With a CA only clients with a certificate of it are let in; the new one that takes
// the place of the old is used without a restart.
func TestMutualTLS(t *testing.T) {
	ca, log := certstest.New(t), &sharedLog{}
	files := ca.Issue([]string{"127.0.0.1"})
	srv := strandlinetest.Start(t, withTLS(files), log.option)
	config, err := certs.Dial(ca.Issue(nil))
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, config, srv.Addr())
	bare, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()), kgo.DialTLSConfig(&tls.Config{RootCAs: ca.Pool()}))
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if err := bare.Ping(t.Context()); err == nil {
		t.Error("a client without a certificate is served")
	}
	log.await(t, "reason=handshake", "has no certificate")
}

// Brokers with certificates of one CA form a cluster; one without is refused, and both
// sides say so.
func TestClusterTLS(t *testing.T) {
	ca, log := certstest.New(t), &sharedLog{}
	files := ca.Issue([]string{"127.0.0.1"})
	var voters []strandline.Voter
	c := startOnLoopback(t, 3, withClusterTLS(files), withTLS(files), log.option,
		func(c *strandline.Config) { voters = c.Voters },
		strandlinetest.WithSetting("default.replication.factor", "3"),
		strandlinetest.WithSetting("min.insync.replicas", "2"))
	config, err := certs.Dial(files)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, config, c.Addrs()...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.DialTLSConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "t")
	if err != nil || len(topics["t"].Partitions[0].ISR) != 3 {
		t.Errorf("%+v, %v", topics, err)
	}
	foreign := certstest.New(t).Issue([]string{"127.0.0.1"})
	foreign.CA = ca.File()
	for name, test := range map[string]struct {
		files              certs.Files
		refused, complains string
	}{
		"of another CA": {foreign, "not trusted here", "refuses this side's certificate"},
		"without TLS":   {certs.Files{}, "without TLS", "it speaks TLS and this broker does not"},
	} {
		t.Run(name, func(t *testing.T) {
			own := &sharedLog{}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { // Ends with ctx.
				srv, err := strandline.Start(ctx, strandline.Config{
					NodeID: 4, Voters: voters, ClusterListen: "127.0.0.1:0", ClusterTLS: strandline.TLSFiles(test.files),
					Logger: slog.New(slog.NewTextHandler(own, nil)),
				})
				if err == nil {
					t.Error("it serves")
					err = srv.Close()
				}
				ended <- err
			}()
			log.await(t, "listener=CLUSTER", "reason=handshake", test.refused)
			own.await(t, "no connection to another broker", test.complains)
			cancel()
			<-ended
		})
	}
}
