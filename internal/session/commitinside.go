package session

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// txnCommitVersion is the version of TxnOffsetCommit that sessions use.
const txnCommitVersion = 5

// commitInside is commit as part of a transaction. Who is nobody's member may commit
// while the group has none, as with commit: Kafka takes a commit in a transaction from
// anybody who does not say who it is, since its old clients did not, but then a former
// owner's counts as well.
func (x *Sessions) commitInside(ctx context.Context, k key, as committer, offsets []Next) error {
	guard, err := as.in.Enter(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.TransactionalID = txnCommitVersion, k.group, as.in.ID
	req.ProducerID, req.ProducerEpoch = int64(as.in.ProducerID), int16(as.in.ProducerEpoch)
	req.Generation, req.MemberID = as.generation, as.memberID
	if as.member {
		instance := k.instanceID()
		req.InstanceID = &instance
	}
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = k.topic
	for _, o := range offsets {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = o.Partition, int64(o.Offset)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	from := x.caller(k)
	from.Guard = guard
	r, err := groups.Ask(ctx, x.o.Groups, k.group, from,
		func(m *group.Shard, c *group.Context, fx *shard.Effects) {
			if d, _ := m.Describe(k.group); !as.member && len(d.Members) > 0 {
				fx.Reply(c.Caller, group.ErrorResponse(req, kafka.ErrUnknownMemberID, ""))
				return
			}
			m.Handle(c, req, fx)
		})
	if err != nil {
		return timedOut(k.group, err)
	}
	for _, rt := range r.(*kmsg.TxnOffsetCommitResponse).Topics {
		for _, rp := range rt.Partitions {
			if err := refused(k.group, rp.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
