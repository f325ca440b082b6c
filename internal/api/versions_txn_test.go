package api_test

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// transactional is a producer with a transactional id of its own.
type transactional struct {
	id    string
	pid   int64
	epoch int16
}

// newTransactional makes one, whatever version is tried.
func (k *talk) newTransactional(id string) transactional {
	k.t.Helper()
	k.w.must(k.w.ensureTransactionsTopic(k.t.Context()))
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, &id, 60_000
	resp := k.ask(req).(*kmsg.InitProducerIDResponse)
	k.equal("code", kafka.Code(resp.ErrorCode), kafka.ErrNone)
	return transactional{id, resp.ProducerID, resp.ProducerEpoch}
}

// transacted returns a topic for transactions alone: markers come when they come.
func (k *talk) transacted() string {
	k.t.Helper()
	const name = "transacted"
	if k.w.plane.Image().Topic(name) == nil {
		k.w.createTopic(name, 2)
	}
	return name
}

// add has a partition join the transaction, as a client of before KIP-890 does.
func (k *talk) add(x transactional, topic string, partition int32) {
	k.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, x.id, x.pid, x.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp := k.ask(req).(*kmsg.AddPartitionsToTxnResponse)
	k.equal("code", kafka.Code(resp.Topics[0].Partitions[0].ErrorCode), kafka.ErrNone)
}

func tryAddPartitionsToTxn(k *talk) {
	x := k.newTransactional(k.name("add"))
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, x.pid, x.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: k.transacted(), Partitions: []int32{0, 1}}}
	one := kmsg.AddPartitionsToTxnRequestTransaction{
		TransactionalID: x.id, ProducerID: x.pid, ProducerEpoch: x.epoch,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: k.transacted(), Partitions: []int32{0, 1}}},
	}
	req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{one}
	codes := codesIn(k.works(req))
	if k.version >= 4 {
		k.equal("codes", len(codes), 3) // The answer has one of its own.
		req.Transactions[0].Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{
			{Topic: k.transacted(), Partitions: []int32{0, 9}},
		}
		resp := k.say(req).(*kmsg.AddPartitionsToTxnResponse)
		partitions := resp.Transactions[0].Topics[0].Partitions
		k.equal("known", kafka.Code(partitions[0].ErrorCode), kafka.ErrOperationNotAttempted)
		k.equal("unknown", kafka.Code(partitions[1].ErrorCode), kafka.ErrUnknownTopicOrPartition)
		tryAddAnew(k, req)
		return
	}
	k.equal("codes", len(codes), 3)
	req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: "nowhere", Partitions: []int32{0}})
	resp := k.say(req).(*kmsg.AddPartitionsToTxnResponse)
	k.equal("known", kafka.Code(resp.Topics[0].Partitions[0].ErrorCode), kafka.ErrOperationNotAttempted)
	k.equal("unknown", kafka.Code(resp.Topics[1].Partitions[0].ErrorCode), kafka.ErrUnknownTopicOrPartition)
	req.Topics[1].Topic = metadata.TransactionsTopic
	resp = k.say(req).(*kmsg.AddPartitionsToTxnResponse)
	k.equal("beside one of the broker's own", kafka.Code(resp.Topics[0].Partitions[0].ErrorCode), kafka.ErrOperationNotAttempted)
	k.equal("the broker's own", kafka.Code(resp.Topics[1].Partitions[0].ErrorCode), kafka.ErrTopicAuthorizationFailed)
}

// topicIDTag is the tagged field in which brokers say which topic of a name they mean.
const topicIDTag = 10_002

// tryAddAnew has the leader of a partition mean another topic than the coordinator knows: it
// was deleted and made anew, and one of them has not heard of that yet.
func tryAddAnew(k *talk, req *kmsg.AddPartitionsToTxnRequest) {
	known := k.w.plane.Image().Topic(k.transacted()).ID
	for id, want := range map[kafka.TopicID]kafka.Code{known: kafka.ErrNone, {9}: kafka.ErrUnknownTopicOrPartition} {
		topic := kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: k.transacted(), Partitions: []int32{0}}
		topic.UnknownTags.Set(topicIDTag, id[:])
		for _, verify := range []bool{false, true} {
			req.Transactions[0].VerifyOnly = verify
			req.Transactions[0].Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{topic}
			k.equal("of topic "+id.String(), codesIn(k.say(req))[1], want)
		}
	}
}

func tryAddOffsetsToTxn(k *talk) {
	x := k.newTransactional(k.name("offsets"))
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = x.id, x.pid, x.epoch, "g"
	k.works(req)
	req.ProducerID++
	k.answers(req, kafka.ErrInvalidProducerIDMapping)
}

func tryEndTxn(k *talk) {
	x := k.newTransactional(k.name("end"))
	k.add(x, k.transacted(), 0)
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.pid, x.epoch, true
	resp := k.works(req).(*kmsg.EndTxnResponse)
	if k.version >= 5 {
		k.equal("producer", [2]int64{resp.ProducerID, int64(resp.ProducerEpoch)}, [2]int64{x.pid, 1})
	}
	k.works(req) // The same again, as after a lost answer.
	req.Commit = false
	k.answers(req, kafka.ErrInvalidTxnState)
	req.ProducerEpoch = x.epoch + 7
	fenced := kafka.ErrInvalidProducerEpoch
	if k.version >= 2 {
		fenced = kafka.ErrProducerFenced
	}
	k.answers(req, fenced)
}

func tryWriteTxnMarkers(k *talk) {
	topic := k.name("marked")
	k.w.createTopic(topic, 1)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{
		ProducerID: 4242, ProducerEpoch: 3, Committed: true, CoordinatorEpoch: 5,
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{
			{Topic: topic, Partitions: []int32{0}}, {Topic: metadata.OffsetsTopic, Partitions: []int32{1}},
		},
	}}
	before := k.w.partition(topic, 0).Log().LogEndOffset()
	k.works(req)
	k.equal("end", k.w.partition(topic, 0).Log().LogEndOffset(), before+1)
	req.Markers[0].CoordinatorEpoch = 4
	k.answers(req, kafka.ErrTransactionCoordinatorFenced)
	tryOddMarkers(k, topic)
	// The sender means the topic that was there before this one.
	req.Markers[0].CoordinatorEpoch, req.Markers[0].Topics = 6, req.Markers[0].Topics[:1]
	req.Markers[0].Topics[0].UnknownTags.Set(topicIDTag, bytes.Repeat([]byte{9}, len(kafka.TopicID{})))
	k.answers(req, kafka.ErrNotLeaderOrFollower)
	k.equal("end after that", k.w.partition(topic, 0).Log().LogEndOffset(), before+1)
}

// tryOddMarkers asks for markers that nobody can need.
func tryOddMarkers(k *talk, topic string) {
	end := k.w.partition(topic, 0).Log().LogEndOffset()
	for what, c := range map[string]struct {
		marker kmsg.WriteTxnMarkersRequestMarker
		topic  string
		want   kafka.Code
	}{
		"of no producer":         {kmsg.WriteTxnMarkersRequestMarker{ProducerID: -1}, topic, kafka.ErrInvalidProducerEpoch},
		"of no epoch":            {kmsg.WriteTxnMarkersRequestMarker{ProducerID: 77, ProducerEpoch: -1}, topic, kafka.ErrInvalidProducerEpoch},
		"of an impossible epoch": {kmsg.WriteTxnMarkersRequestMarker{ProducerID: 77, ProducerEpoch: -7}, topic, kafka.ErrInvalidProducerEpoch},
		"of no coordinator":      {kmsg.WriteTxnMarkersRequestMarker{ProducerID: 77, CoordinatorEpoch: -2}, topic, kafka.ErrTransactionCoordinatorFenced},
		"of no topic":            {kmsg.WriteTxnMarkersRequestMarker{ProducerID: 77}, "nowhere", kafka.ErrUnknownTopicOrPartition},
	} {
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		c.marker.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: c.topic, Partitions: []int32{0}}}
		req.Markers = []kmsg.WriteTxnMarkersRequestMarker{c.marker}
		k.equal(what, codesIn(k.say(req)), []kafka.Code{c.want})
	}
	k.equal("end after those", k.w.partition(topic, 0).Log().LogEndOffset(), end)
}

func tryTxnOffsetCommit(k *talk) {
	x := k.newTransactional(k.name("commit"))
	group := k.name("txn-group")
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = x.id, group, x.pid, x.epoch
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = 1, 41
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{
		Topic: "seeded", TopicID: k.seeded.ID, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p},
	}}
	switch {
	case k.version >= 5: // The broker adds the partition of the group.
	case k.version >= 4:
		k.answers(req, kafka.ErrTransactionAbortable)
	default:
		k.answers(req, kafka.ErrInvalidTxnState)
	}
	if k.version < 5 {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = 3, x.id, x.pid, x.epoch, group
		k.equal("code", kafka.Code(k.ask(add).(*kmsg.AddOffsetsToTxnResponse).ErrorCode), kafka.ErrNone)
	}
	req.Group = ""
	k.answers(req, kafka.ErrInvalidGroupID)
	req.Group = group
	k.works(req)
	k.equal("committed", k.committed(group, false), int64(-1))
	k.equal("unstable", k.committed(group, true), int64(-1000-int64(kafka.ErrUnstableOffsetCommit)))
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 5, x.id, x.pid, x.epoch, true
	k.equal("code", kafka.Code(k.ask(end).(*kmsg.EndTxnResponse).ErrorCode), kafka.ErrNone)
	// What comes next in the transaction waits for the markers.
	x.epoch++
	k.add(x, k.transacted(), 0)
	k.equal("committed", k.committed(group, true), int64(41))
}

// committed returns a group's offset in seeded-1, or a code below -1000.
func (k *talk) committed(group string, stable bool) int64 {
	k.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = 9, stable
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "seeded", Partitions: []int32{1}}}
	req.Groups = append(req.Groups, g)
	p := k.ask(req).(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return -1000 - int64(p.ErrorCode)
	}
	return p.Offset
}

func tryDescribeTransactions(k *talk) {
	x := k.newTransactional(k.name("described"))
	k.add(x, k.transacted(), 1)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{x.id, x.id}
	resp := k.works(req).(*kmsg.DescribeTransactionsResponse)
	k.equal("answers", len(resp.TransactionStates), 1)
	d := resp.TransactionStates[0]
	k.equal("state", d.State, "Ongoing")
	k.equal("producer", [2]int64{d.ProducerID, int64(d.ProducerEpoch)}, [2]int64{x.pid, int64(x.epoch)})
	k.equal("partitions", d.Topics[0].Partitions, []int32{1})
	req.TransactionalIDs = []string{"nobody"}
	k.answers(req, kafka.ErrTransactionalIDNotFound)
}

func tryListTransactions(k *talk) {
	x := k.newTransactional(k.name("listed"))
	req := kmsg.NewPtrListTransactionsRequest()
	req.ProducerIDFilters, req.StateFilters = []int64{x.pid}, []string{"Empty", "Lost"}
	resp := k.works(req).(*kmsg.ListTransactionsResponse)
	k.equal("transactions", len(resp.TransactionStates), 1)
	k.equal("unknown", resp.UnknownStateFilters, []string{"Lost"})
	k.equal("id", resp.TransactionStates[0].TransactionalID, x.id)
	if k.version >= 2 {
		pattern := "("
		req.TransactionalIDPattern = &pattern
		k.answers(req, kafka.ErrInvalidRegularExpression)
	}
}
