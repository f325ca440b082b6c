package strandline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// transformOrders reads orders, and for each writes an invoice, exactly once: the
// invoices and the offsets of the orders are committed together, or neither is.
func transformOrders(ctx context.Context, brokers ...string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(brokers...),
		kgo.TransactionalID("invoices-1"), // One for each running instance, the same after a restart.
		kgo.ConsumerGroup("invoices"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(order *kgo.Record) {
			invoice := &kgo.Record{Topic: "invoices", Key: order.Key, Value: append([]byte("invoice for "), order.Value...)}
			session.Produce(ctx, invoice, failed.Promise())
		})
		// Commits the offsets of what was polled too, unless the group has taken the
		// partitions away meanwhile: then it aborts, and whoever has them now does it.
		if _, err := session.End(ctx, failed.Err() == nil); err != nil {
			return err
		}
	}
}

// payOnce makes a payment for each order through something that is not part of the
// queue. No transaction covers that, so each payment has a key that is the same however
// often the record is read, and whoever makes the payment drops the second one.
func payOnce(ctx context.Context, pay func(key string, order []byte) error, brokers ...string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumerGroup("payments"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		for order := range fetches.RecordsAll() {
			key := fmt.Sprintf("%s-%d-%d", order.Topic, order.Partition, order.Offset)
			if err := pay(key, order.Value); err != nil {
				return err // Not committed: it is read again.
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
}

// TestTransactionExamples runs what docs/transactions.md shows.
func TestTransactionExamples(t *testing.T) {
	s := strandlinetest.Start(t)
	addrs := []string{s.Addr()}
	createTopic(t, addrs, "orders", 1)
	createTopic(t, addrs, "invoices", 1)
	shop := newTransactional(t, addrs, "shop")
	shop.produce("orders", "1", "2", "3")
	shop.end(kgo.TryCommit)
	shop.produce("orders", "never")
	shop.end(kgo.TryAbort)

	run := func(fn func(ctx context.Context) error, until func() bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- fn(ctx) }() // Ends with ctx.
		for !until() {
			select {
			case err := <-done:
				t.Fatalf("ended early: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	invoices := []string{"invoice for 1", "invoice for 2", "invoice for 3"}
	transform := func(ctx context.Context) error { return transformOrders(ctx, addrs...) }
	run(transform, func() bool { return slices.Equal(committed(t, addrs, "invoices"), invoices) })

	// The process ends when the second payment is made, and nothing is committed: both are
	// asked for again, under the keys that they had.
	asked, crash := make(chan string, 10), errors.New("the process ends")
	err := payOnce(t.Context(), func(key string, order []byte) error {
		if asked <- key + " " + string(order); len(asked) == 2 {
			return crash
		}
		return nil
	}, addrs...)
	if !errors.Is(err, crash) {
		t.Fatalf("ended with %v", err)
	}
	run(func(ctx context.Context) error {
		return payOnce(ctx, func(key string, order []byte) error {
			asked <- key + " " + string(order)
			return nil
		}, addrs...)
	}, func() bool { return len(asked) == 2+3 })
	times := map[string]int{}
	for range 2 + 3 {
		times[<-asked]++
	}
	again := 0
	for _, n := range times {
		again += n - 1
	}
	if len(times) != 3 || again != 2 {
		t.Errorf("the payments asked for are %v: want three, two of them twice", times)
	}
}

// TestTransactionsPage: the page shows the examples as they are run here.
func TestTransactionsPage(t *testing.T) {
	source, err := os.ReadFile("transactions_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/transactions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"transformOrders", "payOnce"} {
		_, body, _ := strings.Cut(string(source), "\nfunc "+name+"(")
		body, _, _ = strings.Cut(body, "\n}\n")
		if code := "func " + name + "(" + body + "\n}\n"; !strings.Contains(string(page), code) {
			t.Errorf("docs/transactions.md does not show %s as it is:\n%s", name, code)
		}
	}
	// The method of a class, which test/clients runs: on the page without its indentation.
	source, err = os.ReadFile("test/clients/java/src/main/java/Invoices.java")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut("\n"+string(source), "\n  static void transformOrders(")
	body, _, _ = strings.Cut(body, "\n  }\n")
	code := "```java\nstatic void transformOrders(" + strings.ReplaceAll(body, "\n  ", "\n") + "\n}\n```\n"
	if !strings.Contains(string(page), code) {
		t.Errorf("docs/transactions.md does not show Invoices.java as it is:\n%s", code)
	}
}
