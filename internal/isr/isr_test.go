package isr_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
)

var epoch = time.Unix(1_700_000_000, 0)

// TestScripts runs the conversations in testdata: one command a line, and what
// the leader then knows and wants.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var l *isr.Leader
		now := epoch
		lost := map[kafka.BrokerID]time.Time{}
		unheard := func(id kafka.BrokerID) time.Duration {
			if at, ok := lost[id]; ok {
				return now.Sub(at)
			}
			return 0
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out bytes.Buffer
			for line := range strings.Lines(d.Input) {
				f := strings.Fields(line)
				args := numbers(t, f[1:])
				var want *isr.Change
				var err error
				switch f[0] {
				case "lead-known": // lead-known self end synced high-watermark isr-size replicas...
					all := brokers(args[5:])
					l = isr.NewLeader(isr.Options{
						Self: kafka.BrokerID(args[0]), LogEndOffset: kafka.Offset(args[1]),
						SyncedEnd: kafka.Offset(args[2]), HighWatermark: kafka.Offset(args[3]),
						Replicas: all, ISR: all[:args[4]], MaxLag: 10 * time.Second, Now: now,
					})
				case "lead": // lead self end synced replicas...; all are in the ISR
					l = isr.NewLeader(isr.Options{
						Self: kafka.BrokerID(args[0]), LogEndOffset: kafka.Offset(args[1]),
						SyncedEnd: kafka.Offset(args[2]), Replicas: brokers(args[3:]), ISR: brokers(args[3:]),
						MaxLag: 10 * time.Second, Now: now,
					})
				case "appended": // appended end synced
					l.Appended(kafka.Offset(args[0]), kafka.Offset(args[1]))
				case "fetched": // fetched broker end [broker-epoch]
					f := isr.Fetch{
						From: kafka.BrokerID(args[0]), SyncedEnd: kafka.Offset(args[1]), Eligible: true, Now: now,
					}
					if len(args) > 2 {
						f.BrokerEpoch = kafka.BrokerEpoch(args[2])
					}
					_, want, err = l.Fetched(f)
				case "fetched-fenced": // fetched-fenced broker end, by one that may not become a member
					_, want, err = l.Fetched(isr.Fetch{From: kafka.BrokerID(args[0]), SyncedEnd: kafka.Offset(args[1]), Now: now})
				case "tick": // tick seconds
					now = now.Add(time.Duration(args[0]) * time.Second)
					want = l.Tick(0, now, unheard)
				case "lost": // lost broker; it has no connection any more
					lost[kafka.BrokerID(args[0])] = now
				case "connected": // connected broker
					delete(lost, kafka.BrokerID(args[0]))
				case "committed": // committed epoch isr...
					l.Committed(nil, brokers(args[1:]), kafka.PartitionEpoch(args[0]))
				case "assigned": // assigned epoch replicas...; the ISR stays
					l.Committed(brokers(args[1:]), l.ISR(), kafka.PartitionEpoch(args[0]))
				case "learned": // learned epoch isr-size isr... eligible...; the replicas stay
					ids := brokers(args[2:])
					l.Learned(isr.Decision{
						ISR: ids[:args[1]], Eligible: ids[args[1]:], PartitionEpoch: kafka.PartitionEpoch(args[0]),
					})
				case "min": // min in-sync replicas
					l.SetMinInSync(int(args[0]))
				case "ask":
					fmt.Fprintf(&out, "round %d\n", l.Ask())
				case "answers": // answers broker end round
					_, want, err = l.Fetched(isr.Fetch{
						From: kafka.BrokerID(args[0]), SyncedEnd: kafka.Offset(args[1]), Answers: args[2], Eligible: true, Now: now,
					})
				case "resign":
					want = l.Resign(now)
				case "begins": // begins broker end log-start
					_, want, err = l.Fetched(isr.Fetch{
						From: kafka.BrokerID(args[0]), SyncedEnd: kafka.Offset(args[1]), LogStartOffset: kafka.Offset(args[2]),
						Eligible: true, Now: now,
					})
				case "low": // low own dead...
					fmt.Fprintf(&out, "low watermark %d\n", l.LowWatermark(kafka.Offset(args[0]), except(args[1:])))
				case "refused": // refused epoch seconds
					l.Refused(kafka.PartitionEpoch(args[0]), now.Add(time.Duration(args[1])*time.Second))
				default:
					t.Fatalf("unknown command %q", f[0])
				}
				fmt.Fprintf(&out, "%-20s hw=%d isr=%v", strings.TrimSpace(line), l.HighWatermark(), l.ISR())
				if !l.Settled() {
					out.WriteString(" unsettled")
				}
				if l.Asked() > 0 {
					fmt.Fprintf(&out, " confirmed=%d", l.Confirmed())
					for id := range kafka.BrokerID(5) {
						if n := l.ToAnswer(id); n > 0 {
							fmt.Fprintf(&out, " %d:%d?", id, n)
						}
					}
				}
				if want != nil {
					fmt.Fprintf(&out, " wants %v at epoch %d", members(want), want.PartitionEpoch)
				}
				if err != nil {
					fmt.Fprintf(&out, " error: %v", err)
				}
				out.WriteByte('\n')
			}
			return out.String()
		})
	})
}

// except says of all brokers but some that they are alive.
func except(dead []int64) func(kafka.BrokerID) bool {
	return func(id kafka.BrokerID) bool { return !slices.Contains(dead, int64(id)) }
}

func members(c *isr.Change) []kafka.BrokerID {
	var ids []kafka.BrokerID
	for _, m := range c.ISR {
		ids = append(ids, m.ID)
	}
	return ids
}

func numbers(t *testing.T, fields []string) []int64 {
	t.Helper()
	var ns []int64
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, n)
	}
	return ns
}

func brokers(ns []int64) []kafka.BrokerID {
	var ids []kafka.BrokerID
	for _, n := range ns {
		ids = append(ids, kafka.BrokerID(n))
	}
	return ids
}

// TestHighWatermark checks the rules under random conversations: it never
// falls, and no committed member has synced less than it once all have
// reported.
func TestHighWatermark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []kafka.BrokerID{1, 2, 3}
		now := epoch
		ends := map[kafka.BrokerID]kafka.Offset{1: 0, 2: 0, 3: 0}
		l := isr.NewLeader(isr.Options{Self: 1, Replicas: all, ISR: all, MaxLag: time.Second, Now: now})
		var end kafka.Offset
		var partitionEpoch kafka.PartitionEpoch
		var pending *isr.Change
		note := func(c *isr.Change) {
			if c != nil {
				pending = c
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				end += kafka.Offset(rapid.IntRange(1, 9).Draw(t, "records"))
				ends[1] = kafka.Offset(rapid.Int64Range(int64(ends[1]), int64(end)).Draw(t, "synced"))
				l.Appended(end, ends[1])
			},
			"fetch": func(t *rapid.T) {
				id := rapid.SampledFrom(all[1:]).Draw(t, "follower")
				ends[id] = kafka.Offset(rapid.Int64Range(int64(ends[id]), int64(end)).Draw(t, "end"))
				_, c, err := l.Fetched(isr.Fetch{From: id, SyncedEnd: ends[id], LogEndOffset: end, Eligible: true, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				note(c)
			},
			"tick": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
				severed := rapid.SampledFrom(append(all[1:], 0)).Draw(t, "severed")
				note(l.Tick(end, now, func(id kafka.BrokerID) time.Duration {
					if id == severed {
						return time.Hour
					}
					return 0
				}))
			},
			"decide": func(t *rapid.T) {
				if pending == nil {
					return
				}
				if rapid.Bool().Draw(t, "granted") {
					partitionEpoch++
					l.Committed(nil, members(pending), partitionEpoch)
				} else {
					l.Refused(partitionEpoch, now)
				}
				pending = nil
			},
			"": func(t *rapid.T) {
				for _, id := range l.ISR() {
					if l.SyncedEnd(id) != kafka.NoOffset && l.HighWatermark() > max(ends[id], 0) {
						t.Fatalf("high watermark %d is past the %d that in-sync broker %d has",
							l.HighWatermark(), ends[id], id)
					}
				}
			},
		})
	})
}

// TestHighWatermarkNeverFalls lets a far-behind member join through a decision
// the leader did not ask for.
func TestHighWatermarkNeverFalls(t *testing.T) {
	l := isr.NewLeader(isr.Options{
		Self: 1, Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1}, MaxLag: time.Second, Now: epoch,
	})
	l.Appended(10, 10)
	if _, _, err := l.Fetched(isr.Fetch{From: 2, SyncedEnd: 3, Now: epoch}); err != nil {
		t.Fatal(err)
	}
	l.Committed(nil, []kafka.BrokerID{1, 2}, 1)
	if got := l.HighWatermark(); got != 10 {
		t.Fatalf("high watermark fell to %d", got)
	}
}

// TestOutsiders: a broker that is no replica changes nothing.
func TestOutsiders(t *testing.T) {
	l := isr.NewLeader(isr.Options{Self: 1, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Now: epoch})
	l.Appended(10, 5)
	moved, want, err := l.Fetched(isr.Fetch{From: 7, SyncedEnd: 10, Eligible: true, Now: epoch})
	if moved || want != nil || !errors.Is(err, isr.ErrNotReplica) {
		t.Fatalf("an outsider's fetch counted: moved %v, wants %v, %v", moved, want, err)
	}
	if got := l.HighWatermark(); got != 5 {
		t.Fatalf("high watermark %d, want 5", got)
	}
}
