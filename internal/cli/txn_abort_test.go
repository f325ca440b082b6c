package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// What is decided can't be aborted, and whose partitions can't be told is not said to be
// without a controller. Here a partition takes no marker, because it has had one of a
// coordinator that will never be.
func TestAbortWhatIsBeingEnded(t *testing.T) {
	srv := strandlinetest.Start(t)
	stuck := func(id string, how kgo.TransactionEndTry) {
		t.Helper()
		client, err := kgo.NewClient(kgo.SeedBrokers(srv.Addr()), kgo.TransactionalID(id), kgo.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce := func() {
			t.Helper()
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: id, Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		produce()
		producer, epoch, err := client.ProducerID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in := kadm.TopicsSet{}
		in.Add(id, 0)
		_, err = kadm.NewClient(client).WriteTxnMarkers(t.Context(), kadm.TxnMarkers{
			ProducerID: producer, ProducerEpoch: epoch, CoordinatorEpoch: 1<<31 - 1, Topics: in,
		})
		if err != nil {
			t.Fatal(err)
		}
		produce()
		if err := client.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	stuck("decided", kgo.TryCommit)
	stuck("deaf", kgo.TryAbort)
	for id, want := range map[string]string{
		"decided": "the transaction of decided can't be aborted any more: it is committed",
		"deaf":    "the transaction of deaf is aborted, but not all of its partitions were told yet",
	} {
		var out bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			Args:  []string{"-b", srv.Addr(), "--timeout", "1500ms", "txn", "abort", "--yes", id},
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		})
		if code == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, want another than 0 and %q:\n%s", code, want, &out)
		}
	}
}
