package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/kafka"
)

// A partition is hot if it takes at least hotRate records a second, and hotTimes what
// its topic's other partitions take on average. Its key shows in hotSample of the
// records that came meanwhile, from hotPlaces places: the newest alone may be a burst of
// somebody else.
const (
	hotRate   = 50
	hotTimes  = 3
	hotSample = 1000
	hotPlaces = 4
	// maxHot is how many are looked at closely.
	maxHot = 3
	// hotPatience bounds the reading of one sample.
	hotPatience = 5 * time.Second
	// hotKeyShare is from which share on a key is the reason.
	hotKeyShare = 0.2
)

// hotPartition is one that stands out.
type hotPartition struct {
	kafka.TopicPartition
	rate   float64 // Records in a second.
	others float64 // The average of its topic's others.
	share  float64 // Of its topic.
	of     int     // Partitions of its topic.
	start  int64
	seen   int64 // The end when watching began.
	end    int64
}

// checkHot watches how fast partitions grow and looks into those that stand out.
func (d *doctor) checkHot(ctx context.Context, adm *kadm.Client, m kadm.Metadata) {
	limited, cancel := context.WithTimeout(ctx, d.flags.timeout+d.watch)
	defer cancel()
	names := m.Topics.Names()
	starts, err := adm.ListStartOffsets(limited, names...)
	before, err2 := adm.ListEndOffsets(limited, names...)
	if err = cmp.Or(unlessSome(err), unlessSome(err2)); err != nil {
		d.say(statusWarning, "traffic", "offsets are not known: "+d.explain(err).message, "")
		return
	}
	began := time.Now()
	select {
	case <-limited.Done():
		return
	case <-time.After(d.watch):
	}
	after, err := adm.ListEndOffsets(limited, names...)
	if err = unlessSome(err); err != nil {
		d.say(statusWarning, "traffic", "offsets are not known: "+d.explain(err).message, "")
		return
	}
	rates := ratesOf(before, after, time.Since(began).Seconds())
	hot := hotOf(rates)
	if len(hot) == 0 {
		d.ok("traffic", "no partition takes far more records than the others of its topic")
	}
	for _, h := range hot[:min(len(hot), maxHot)] {
		h.start, h.end = listed(starts, h.Topic, h.Partition), listed(after, h.Topic, h.Partition)
		h.seen = listed(before, h.Topic, h.Partition)
		d.sayHot(h, d.sampleKeys(ctx, h))
	}
}

// unlessSome returns no error where some brokers answered: one partition without a leader
// says nothing of the others' traffic, and is told of elsewhere.
func unlessSome(err error) error {
	var parts *kadm.ShardErrors
	if errors.As(err, &parts) && !parts.AllFailed {
		return nil
	}
	return err
}

// ratesOf is how many records each partition took in a second.
func ratesOf(before, after kadm.ListedOffsets, seconds float64) map[kafka.TopicPartition]float64 {
	rates := map[kafka.TopicPartition]float64{}
	after.Each(func(o kadm.ListedOffset) {
		was, ok := before.Lookup(o.Topic, o.Partition)
		if ok && o.Err == nil && was.Err == nil && o.Offset >= was.Offset && seconds > 0 {
			rates[kafka.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = float64(o.Offset-was.Offset) / seconds
		}
	})
	return rates
}

// hotOf returns the partitions that stand out among those of their topic, the hottest
// first.
func hotOf(rates map[kafka.TopicPartition]float64) []hotPartition {
	sums, counts := map[string]float64{}, map[string]int{}
	for tp, rate := range rates {
		sums[tp.Topic] += rate
		counts[tp.Topic]++
	}
	var hot []hotPartition
	for tp, rate := range rates {
		n := counts[tp.Topic]
		if n < 2 || rate < hotRate {
			continue
		}
		others := (sums[tp.Topic] - rate) / float64(n-1)
		if rate >= hotTimes*others {
			hot = append(hot, hotPartition{TopicPartition: tp, rate: rate, others: others, share: rate / sums[tp.Topic], of: n})
		}
	}
	slices.SortFunc(hot, func(a, b hotPartition) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), a.Compare(b.TopicPartition))
	})
	return hot
}

// keySample is what the newest records of a partition have in common.
type keySample struct {
	records int
	bytes   int64
	// key is the one with most bytes; keyless says that this is none.
	key      []byte
	keyless  bool
	keyBytes int64
}

func (s *keySample) share() float64 {
	if s.bytes == 0 {
		return 0
	}
	return float64(s.keyBytes) / float64(s.bytes)
}

// span is records from one offset up to another.
type span struct{ from, to int64 }

// places divides a sample over what came while it was watched. What came is the newest
// hotSample at least, however slowly.
func (h *hotPartition) places() []span {
	from := max(h.start, 0, min(h.seen, h.end-hotSample))
	n := min(hotSample, h.end-from)
	var all []span
	for i := range int64(hotPlaces) {
		// The last place is where the newest are.
		first := from + (h.end-from-n)*i/(hotPlaces-1) + n*i/hotPlaces
		all = append(all, span{first, first + n*(i+1)/hotPlaces - n*i/hotPlaces})
	}
	return all
}

// sampleKeys reads a sample of the records of a partition, as far as they come in time.
func (d *doctor) sampleKeys(ctx context.Context, h hotPartition) keySample {
	ctx, cancel := context.WithTimeout(ctx, min(hotPatience, d.flags.timeout))
	defer cancel()
	var records []*kgo.Record
	for _, s := range h.places() {
		records = append(records, d.read(ctx, h.TopicPartition, s)...)
	}
	return sampleOf(records)
}

// read returns records of a partition, as far as they come in time.
func (d *doctor) read(ctx context.Context, tp kafka.TopicPartition, s span) (records []*kgo.Record) {
	client, err := d.connect(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		tp.Topic: {tp.Partition: kgo.NewOffset().At(s.from)},
	}), kgo.KeepControlRecords()) // What ends with a marker has an end too.
	if err != nil {
		return nil
	}
	defer client.Close()
	for next := s.from; next < s.to && ctx.Err() == nil; {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Offset < s.to && !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records
}

// sampleOf finds the key with most bytes.
func sampleOf(records []*kgo.Record) keySample {
	s := keySample{records: len(records)}
	byKey, keyless := map[string]int64{}, int64(0)
	for _, r := range records {
		n := int64(len(r.Key) + len(r.Value))
		s.bytes += n
		if r.Key == nil {
			keyless += n
			continue
		}
		byKey[string(r.Key)] += n
	}
	s.keyless, s.keyBytes = keyless > 0, keyless
	for key, n := range byKey {
		if n > s.keyBytes || n == s.keyBytes && !s.keyless && key < string(s.key) {
			s.key, s.keyBytes, s.keyless = []byte(key), n, false
		}
	}
	return s
}

func (d *doctor) sayHot(h hotPartition, s keySample) {
	message := fmt.Sprintf("%s takes %.0f records/s, %.0f%% of its topic's: the other %s take %.0f on average",
		h.TopicPartition, h.rate, 100*h.share, plural(h.of-1, "partition"), h.others)
	advice := "Watch it: strandline top"
	switch {
	case s.records == 0:
	case s.keyless && s.share() >= hotKeyShare:
		message += fmt.Sprintf("; %.0f%% of %s looked at have no key", 100*s.share(), plural(s.records, "record"))
		advice = "Somebody sends to this partition by its number: leave the choice to the client."
	case s.share() >= hotKeyShare:
		message += fmt.Sprintf("; key %q has %.0f%% of the bytes of %s looked at", clipKey(s.key), 100*s.share(),
			plural(s.records, "record"))
		advice = "More partitions do not divide a key: add a part to it where its order allows (" + clipKey(s.key) +
			"/1, /2, ...), or send it to a topic of its own."
	default:
		message += fmt.Sprintf("; no key has more than %.0f%% of the bytes of %s looked at", max(1, 100*s.share()), plural(s.records, "record"))
		advice = "Several keys meet there: more partitions divide them (keys move then), or a producer's partitioner is uneven."
	}
	d.say(statusWarning, "traffic", message, advice)
}

// maxKeyShown bounds how much of a key is shown.
const maxKeyShown = 60

func clipKey(key []byte) string {
	if len(key) > maxKeyShown {
		return string(key[:maxKeyShown]) + "..."
	}
	return string(key)
}
