package strandline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/quorum"
)

// TestMetadataIsGone: where records are there and nothing of the metadata, the broker
// does not start as if it knew that they are nobody's. With the metadata back, all is
// there.
func TestMetadataIsGone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "data")
	config := strandline.Config{DataDir: dir}
	srv, err := strandline.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	producer := client(t, srv.Addr(), kgo.AllowAutoTopicCreation())
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("paid")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	producer.Close()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	metadata, copied := filepath.Join(dir, "metadata"), filepath.Join(t.TempDir(), "metadata")
	if err := os.Rename(metadata, copied); err != nil {
		t.Fatal(err)
	}
	logs := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "topics", "*", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := logs()
	for range 2 {
		srv, err := strandline.Start(t.Context(), config)
		var damage *quorum.CorruptionError
		if !errors.As(err, &damage) {
			t.Errorf("started without its metadata: %v", err)
		}
		if err == nil {
			_ = srv.Close() // It should not have started.
		}
	}
	if after := logs(); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the logs %v became %v", before, after)
	}
	if err := os.RemoveAll(metadata); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, metadata); err != nil {
		t.Fatal(err)
	}
	if srv, err = strandline.Start(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	defer srv.Close() //nolint:errcheck // It has nothing to lose.
	consumer := client(t, srv.Addr(), kgo.ConsumeTopics("orders"))
	if fetches := consumer.PollFetches(ctx); fetches.NumRecords() != 1 {
		t.Errorf("%d records, %v", fetches.NumRecords(), fetches.Err())
	}
}
