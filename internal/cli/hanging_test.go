package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// A transaction that ends while the tool looks at partitions and coordinators does not
// hang: who aborts what is listed would tear what its producer does meanwhile.
func TestWhatEndsMeanwhileDoesNotHang(t *testing.T) {
	srv := strandlinetest.Start(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()), kgo.TransactionalID("busy"), kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	transaction := func(ctx context.Context) error {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
			return err
		}
		return client.EndTransaction(ctx, kgo.TryCommit)
	}
	if err := transaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { // Ends before the test does.
		for {
			if err := transaction(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 40 {
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			Args: []string{"-b", srv.Addr(), "txn", "list", "--hanging"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		})
		if code != 0 || out.Len() > 0 {
			t.Errorf("exit code %d: %s", code, &out)
			break
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the producer ended before: %v", err)
	default:
		stop()
		<-ended
	}
}
