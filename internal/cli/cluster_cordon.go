package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
)

// cordonedOf returns which of the brokers that are up are to get no more replicas.
func cordonedOf(
	ctx context.Context, adm *kadm.Client, brokers []kmsg.DescribeClusterResponseBroker,
) (map[int32]bool, error) {
	var up []int32
	for _, b := range brokers {
		if !b.IsFenced {
			up = append(up, b.NodeID)
		}
	}
	cordoned := map[int32]bool{}
	described, err := adm.DescribeBrokerConfigs(ctx, up...)
	for _, r := range described {
		err = errors.Join(err, r.Err)
		for _, c := range r.Configs {
			id, _ := strconv.ParseInt(r.Name, 10, 32)
			if c.Key == config.CordonedLogDirs && c.MaybeValue() != "" {
				cordoned[int32(id)] = true
			}
		}
	}
	return cordoned, err
}

// cordon has brokers get no more replicas, or get them again (KIP-1066).
func (a *app) cordon(ctx context.Context, client *kgo.Client, s *surveyed, ids []int32, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op = config.CordonedLogDirs, kmsg.IncrementalAlterConfigOpDelete
	if on {
		c.Op, c.Value = kmsg.IncrementalAlterConfigOpSet, new("*")
	}
	for _, id := range ids {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(id)
		r.Configs = append(r.Configs, c)
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = append(req.Resources, r)
		resp, err := client.Broker(int(s.askAbout(id))).RetriableRequest(ctx, req)
		if err != nil {
			return fmt.Errorf("cordon broker %d: %w", id, err)
		}
		for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
			if err := refused(fmt.Sprintf("cordon broker %d", id), r.ErrorCode, r.ErrorMessage); err != nil {
				return err
			}
		}
	}
	return awaitCordon(ctx, kadm.NewClient(client), s, ids, on)
}

// awaitCordon waits until brokers that are up know whether they are cordoned: what is
// planned next goes by what they say.
func awaitCordon(ctx context.Context, adm *kadm.Client, s *surveyed, ids []int32, on bool) error {
	for {
		cordoned, err := cordonedOf(ctx, adm, s.brokers)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(s.brokers, func(b kmsg.DescribeClusterResponseBroker) bool {
			return slices.Contains(ids, b.NodeID) && !b.IsFenced && cordoned[b.NodeID] != on
		}) {
			return nil
		}
		select {
		case <-time.After(cordonPause):
		case <-ctx.Done():
			return fmt.Errorf("wait until the brokers know that they are cordoned, or not: %w", ctx.Err())
		}
	}
}

// cordonPause is the time between two looks.
const cordonPause = 20 * time.Millisecond

// askAbout returns whom to ask about a broker: itself, which knows first what it is told,
// or any that is up.
func (s *surveyed) askAbout(id int32) int32 {
	for _, b := range s.brokers {
		if b.NodeID == id && !b.IsFenced {
			return id
		}
	}
	for _, b := range s.brokers {
		if !b.IsFenced {
			return b.NodeID
		}
	}
	return id
}

// takes says of brokers that they take something.
func takes(ids []int32) string {
	if len(ids) > 1 {
		return "Brokers " + numbers(ids) + " take"
	}
	return "Broker " + numbers(ids) + " takes"
}
