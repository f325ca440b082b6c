package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/strandline/strandline/internal/moves"
)

// Kafka's settings for it: a rate for each broker, and which replicas it is for.
const (
	leaderRate       = "leader.replication.throttled.rate"
	followerRate     = "follower.replication.throttled.rate"
	leaderReplicas   = "leader.replication.throttled.replicas"
	followerReplicas = "follower.replication.throttled.replicas"
)

// limitRate sets the limit that --throttle asks for, on all brokers and on the topics
// that move, and returns what takes it off again. Who is interrupted leaves it on:
// what is copied goes on, and no faster.
func (m *mover) limitRate(
	ctx context.Context, s *surveyed, plan moves.Plan,
) (undo func(context.Context) error, err error) {
	none := func(context.Context) error { return nil }
	if m.throttle == "" || plan.Copied() == 0 {
		return none, nil
	}
	rate, err := parseBytes("throttle", m.throttle)
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for _, p := range plan {
		topics[p.Topic] = true
	}
	var brokers []int32
	for _, b := range s.brokers {
		brokers = append(brokers, b.NodeID)
	}
	names := slices.Sorted(maps.Keys(topics))
	value, all := strconv.FormatInt(rate, 10), "*"
	if err := m.setRates(ctx, brokers, kadm.SetConfig, &value, names, &all); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return m.setRates(ctx, brokers, kadm.DeleteConfig, nil, names, nil)
	}, nil
}

func (m *mover) setRates(
	ctx context.Context, brokers []int32, op kadm.IncrementalOp, rate *string, topics []string, replicas *string,
) error {
	ctx, cancel := context.WithTimeout(ctx, m.flags.timeout)
	defer cancel()
	change := func(names []string, value *string) (out []kadm.AlterConfig) {
		for _, n := range names {
			out = append(out, kadm.AlterConfig{Op: op, Name: n, Value: value})
		}
		return out
	}
	ofBrokers, err := m.adm.AlterBrokerConfigs(ctx, change([]string{leaderRate, followerRate}, rate), brokers...)
	if err != nil {
		return err
	}
	ofTopics, err := m.adm.AlterTopicConfigs(ctx, change([]string{leaderReplicas, followerReplicas}, replicas), topics...)
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(ofBrokers, ofTopics) {
		if r.Err != nil {
			return refusal("limit the rate of copying: "+r.Name, r.Err, r.ErrMessage).
				hint("Leave --throttle out: --parallel 1 is gentle too.")
		}
	}
	return nil
}

// parseBytes reads a number of bytes, with a unit or none.
func parseBytes(flag, text string) (int64, error) {
	units := []struct {
		suffix string
		bytes  int64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
	}
	number := strings.TrimSuffix(strings.TrimSpace(text), "/s")
	for _, u := range units {
		digits, ok := strings.CutSuffix(number, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || n <= 0 || n*float64(u.bytes) < 1 || n*float64(u.bytes) > 1<<60 {
			break
		}
		return int64(n * float64(u.bytes)), nil
	}
	return 0, usagef("--%s %s: want a number of bytes, such as 50MiB", flag, text)
}
