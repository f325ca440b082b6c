package txn_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// TestScripts runs the scripts in testdata/scripts: each is a conversation with one
// shard, with every reply, record and marker. At the end of each, and at each reload,
// the records are replayed into an empty shard, which must be equal.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.out.Reset()
			if err := w.run(&args{d}); err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.shard.Check()
			if w.out.Len() > 0 {
				return w.out.String()
			}
			return "ok\n"
		})
		if diff := cmp.Diff(w.shard.Durable(), w.replayed().Durable()); diff != "" {
			t.Errorf("the records rebuild another state (-live +replayed):\n%s", diff)
		}
	})
}

// world is a shard with the host around it: a log, a clock, callers who print what
// they are told, and a sender that keeps its orders until the script has them done.
type world struct {
	shard     *txn.Shard
	settings  txn.Settings
	epoch     int32
	producers int64
	nowMs     int64
	log       []shard.Record
	orders    []*txn.Markers
	fx        shard.Effects
	reject    kafka.Code
	late      bool
	out       strings.Builder
}

func newWorld() *world {
	w := &world{settings: txn.DefaultSettings(), nowMs: 1_000_000, producers: 100}
	w.shard = w.newShard()
	w.shard.Loaded(w.nowMs)
	return w
}

func (w *world) newShard() *txn.Shard {
	return txn.New(txn.Options{Settings: w.settings, CoordinatorEpoch: w.epoch, Sender: &sender{w}})
}

// replayed returns a shard that has loaded the log.
func (w *world) replayed() *txn.Shard {
	s := w.newShard()
	for _, r := range w.log {
		if err := s.Replay(r); err != nil {
			panic(err)
		}
	}
	s.Loaded(w.nowMs)
	s.Check()
	return s
}

// sender takes orders.
type sender struct{ w *world }

// Complete implements shard.Caller.
func (s *sender) Complete(response any) {
	m := response.(*txn.Markers)
	if len(m.Partitions) == 0 {
		s.w.printf("sender <- nothing\n")
		return
	}
	outcome := "abort"
	if m.Commit {
		outcome = "commit"
	}
	s.w.printf("sender <- %s %s producer=%d/%d coordinator=%d%s\n", m.ID, outcome,
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, partitionsText(m.Partitions))
	s.w.orders = append(s.w.orders, m)
}

// caller is somebody who waits for a reply.
type caller struct {
	w    *world
	name string
	// retry makes the request again with a producer id.
	retry func()
}

// Complete implements shard.Caller.
func (c *caller) Complete(response any) {
	if _, ok := response.(txn.NeedProducerID); ok {
		c.retry()
		return
	}
	if standing, ok := response.(*txn.Standing); ok {
		c.w.printf("%s <- standing %s %s timeout=%d start=%d%s\n", c.name, standing.Code, standing.State,
			standing.TimeoutMs, standing.StartMs, partitionsText(standing.Partitions))
		return
	}
	c.w.printf("%s <- %s\n", c.name, show(response.(kmsg.Response)))
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format, args...) }

// step runs one step as the host does, with every append committed at once.
func (w *world) step(fn func(fx *shard.Effects)) {
	w.fx.Reset()
	fn(&w.fx)
	if len(w.fx.Records) > 0 && w.reject != kafka.ErrNone {
		code := w.reject
		w.reject = kafka.ErrNone
		w.printf("append fails\n")
		w.fx.Records = nil
		w.shard.Rejected(w.nowMs, &w.fx, code)
	}
	for _, kv := range w.fx.Records {
		w.append(kv)
	}
	if w.late && len(w.fx.Replies) > 0 {
		w.late = false
		w.printf("not committed in time\n")
		w.shard.Late(&w.fx, kafka.ErrCoordinatorNotAvailable)
	}
	replies := append([]shard.Reply(nil), w.fx.Replies...)
	for _, r := range replies {
		r.To.Complete(r.Response)
	}
}

func (w *world) append(kv shard.KeyValue) {
	r := shard.Record{
		Key: append([]byte(nil), kv.Key...), Offset: kafka.Offset(len(w.log)), TimestampMs: w.nowMs,
	}
	if kv.Value != nil {
		r.Value = append([]byte{}, kv.Value...)
	}
	text, err := txn.DecodeRecord(r.Key, r.Value)
	if err != nil {
		panic(err)
	}
	w.printf("record %d: %s\n", r.Offset, text)
	w.log = append(w.log, r)
	if err := w.shard.Replay(r); err != nil {
		panic(err)
	}
}

// advance lets time pass, tick by tick.
func (w *world) advance(d time.Duration) {
	end := w.nowMs + d.Milliseconds()
	start := w.nowMs
	for steps := 0; ; steps++ {
		next := w.shard.Deadline()
		if next > end {
			break
		}
		if steps > 10_000 {
			panic("the shard ticks without end")
		}
		w.nowMs = max(w.nowMs, next)
		if w.nowMs > start {
			w.printf("at +%s:\n", time.Duration(w.nowMs-start)*time.Millisecond)
		}
		w.step(func(fx *shard.Effects) { w.shard.Tick(w.nowMs, fx) })
		w.shard.Check()
	}
	w.nowMs = end
}

// run runs one command of a script. Requests have the arguments id=x, version=N,
// producer=ID/EPOCH, and as=NAME for who is answered; after each of them the shard
// ticks while it is due, unless the script says hold.
func (w *world) run(a *args) error {
	if req := w.request(a); req != nil {
		req.SetVersion(int16(a.num("version", int64(req.MaxVersion()))))
		w.ask(a, req, kafka.NoProducerID)
	} else if err := w.command(a); err != nil {
		return err
	}
	if !a.d.HasArg("hold") {
		w.advance(0)
	}
	return nil
}

func (w *world) ask(a *args, req kmsg.Request, id kafka.ProducerID) {
	c := &txn.Context{
		NowMs: w.nowMs, ProducerID: id,
		Offsets: kafka.TopicPartition{Topic: "__consumer_offsets", Partition: 7},
	}
	name := "client"
	if a != nil {
		name = a.str("as", name)
		c.NoLibrary = a.d.HasArg("no-library")
	}
	c.Caller = &caller{w, name, func() {
		w.producers++
		w.ask(a, req, kafka.ProducerID(w.producers-1))
	}}
	w.step(func(fx *shard.Effects) { w.shard.Handle(c, req, fx) })
}

func (w *world) request(a *args) kmsg.Request {
	id := a.str("id", "x")
	producerID, epoch := a.producer("producer")
	switch a.d.Cmd {
	case "init":
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, int32(a.num("timeout", 60_000))
		req.ProducerID, req.ProducerEpoch = producerID, epoch
		return req
	case "add":
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		version := a.num("version", 5)
		if version < 4 {
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, producerID, epoch
			for _, p := range a.partitions() {
				req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{
					Topic: p.Topic, Partitions: []int32{p.Partition},
				})
			}
			return req
		}
		one := kmsg.AddPartitionsToTxnRequestTransaction{
			TransactionalID: id, ProducerID: producerID, ProducerEpoch: epoch, VerifyOnly: a.d.HasArg("verify"),
		}
		for _, p := range a.partitions() {
			one.Topics = append(one.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{
				Topic: p.Topic, Partitions: []int32{p.Partition},
			})
		}
		req.Transactions = append(req.Transactions, one)
		return req
	case "offsets":
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, producerID, epoch, "g"
		return req
	case "commit", "abort":
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, producerID, epoch
		req.Commit = a.d.Cmd == "commit"
		return req
	}
	return nil
}

func (w *world) command(a *args) error {
	switch a.d.Cmd {
	case "written":
		w.written(a)
	case "advance":
		w.advance(mustDuration(a.d.CmdArgs[0].Key))
	case "reject":
		w.reject = kafka.Code(a.num("code", int64(kafka.ErrCoordinatorNotAvailable)))
	case "late":
		w.late = true
	case "set-clock":
		by := mustDuration(a.d.CmdArgs[0].Key).Milliseconds()
		w.nowMs += by
		w.shard.ClockSet(by)
	case "reload":
		w.step(func(fx *shard.Effects) { w.shard.Unloaded(fx, kafka.ErrNotCoordinator) })
		w.orders, w.epoch = nil, w.epoch+1
		w.shard = w.replayed()
	case "settings":
		s := &w.settings
		s.MaxParked = int(a.num("max-parked", int64(s.MaxParked)))
		s.MaxOnce = int(a.num("max-once", int64(s.MaxOnce)))
		if a.d.HasArg("expiration") {
			s.Expiration = mustDuration(a.str("expiration", ""))
		}
		w.shard.Configure(*s)
	case "epoch":
		w.setEpoch(a)
	case "describe":
		w.printf("%s\n", showDescribed(w.shard.Describe(a.str("id", "x"))))
	case "standing":
		id, epoch := a.producer("producer")
		who := txn.Producer{ID: a.str("id", "x"), PID: kafka.ProducerID(id), Epoch: kafka.ProducerEpoch(epoch)}
		c := &txn.Context{NowMs: w.nowMs, Caller: &caller{w, "client", nil}}
		w.step(func(fx *shard.Effects) { w.shard.Standing(c, who, fx) })
	case "counts":
		w.printf("%+v\n", w.shard.Counts())
	case "list":
		w.list(a)
	default:
		return errors.New("unknown command " + a.d.Cmd)
	}
	return nil
}

// written has the sender report on the oldest order, or on order=N.
func (w *world) written(a *args) {
	i := int(a.num("order", 0))
	if i >= len(w.orders) {
		w.printf("the sender has no order\n")
		return
	}
	order := w.orders[i]
	done, left := order.Partitions, 0
	if a.d.HasArg("partitions") {
		done = a.partitions()
		left = int(a.num("left", int64(len(order.Partitions)-len(done))))
	}
	if left == 0 && !a.d.HasArg("again") {
		w.orders = append(w.orders[:i:i], w.orders[i+1:]...)
	}
	w.step(func(fx *shard.Effects) { w.shard.MarkersWritten(order, done, left, w.nowMs, fx) })
}

// setEpoch writes a record as if the producer had used up its epochs.
func (w *world) setEpoch(a *args) {
	last := w.log[len(w.log)-1]
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(last.Value); err != nil {
		panic(err)
	}
	v.ProducerEpoch = int16(a.num("to", 0))
	v.UnknownTags = kmsg.Tags{}
	w.append(shard.KeyValue{Key: last.Key, Value: v.AppendTo(nil)})
}

func (w *world) list(a *args) {
	req := kmsg.NewPtrListTransactionsRequest()
	req.Version = int16(a.num("version", 2))
	req.StateFilters, req.DurationFilterMillis = a.list("states"), a.num("duration", -1)
	for _, id := range a.list("producers") {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			panic(err)
		}
		req.ProducerIDFilters = append(req.ProducerIDFilters, n)
	}
	if pattern := a.str("pattern", ""); pattern != "" {
		req.TransactionalIDPattern = &pattern
	}
	f, unknown, err := txn.NewFilter(req)
	if err != nil {
		w.printf("%v\n", err)
		return
	}
	if len(unknown) > 0 {
		w.printf("unknown states %v\n", unknown)
	}
	for _, t := range w.shard.List(nil, &f, w.nowMs) {
		w.printf("%s %s producer=%d\n", t.TransactionalID, t.TransactionState, t.ProducerID)
	}
}
