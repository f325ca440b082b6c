package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describedQuorum is who decides on the cluster's metadata, as its leader sees it.
type describedQuorum struct {
	Leader        int32          `json:"leader"` // -1 if there is none.
	Term          int32          `json:"term"`
	HighWatermark int64          `json:"high_watermark"`
	Voters        []quorumMember `json:"voters"`
	Learners      []quorumMember `json:"learners"`
}

// quorumMember is a voter or learner.
type quorumMember struct {
	ID        int32  `json:"id"`
	Directory string `json:"directory_id"`
	Address   string `json:"address"` // Of its cluster listener; "" if it is not known.
	Lag       int64  `json:"lag"`     // Entries that it lacks.
	// LastContact and LastCaughtUp are milliseconds since 1970; -1 if it was never
	// heard of.
	LastContact  int64 `json:"last_contact_ms"`
	LastCaughtUp int64 `json:"last_caught_up_ms"`

	directory [16]byte
	host      string
	port      uint16
}

// voterSilent is after how long a voter counts as lost: it says something many
// times a second.
const voterSilent = 5 * time.Second

// lost reports whether a voter has not been heard of for long, by the leader's clock.
func (q *describedQuorum) lost(v quorumMember) bool {
	leader, ok := find(q.Voters, q.Leader)
	if !ok || leader.LastContact <= 0 {
		return false
	}
	silence := time.Duration(leader.LastContact-v.LastContact) * time.Millisecond
	return v.LastContact < 0 || silence > voterSilent
}

// describeQuorumRequest asks for the log of the cluster's metadata.
func describeQuorumRequest() *kmsg.DescribeQuorumRequest {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	return req
}

const (
	// quorumPatience is how long who decides is asked for: elections take some tenths of a second.
	quorumPatience = 5 * time.Second
	// quorumPause is between two questions.
	quorumPause = 100 * time.Millisecond
)

// describeQuorum asks any broker, which has the leader answer, and asks on while there is none.
func describeQuorum(ctx context.Context, client *kgo.Client) (*describedQuorum, error) {
	asking, cancel := context.WithTimeout(ctx, quorumPatience)
	defer cancel()
	var refused error
	for {
		q, err := askForQuorum(asking, client)
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			return nil, ctx.Err()
		case errors.Is(err, kerr.NotController):
			refused = err
		case refused == nil || asking.Err() == nil:
			return q, err
		}
		select {
		case <-asking.Done():
			return nil, refused
		case <-time.After(quorumPause):
		}
	}
}

// askForQuorum asks the brokers whose addresses were given, until one answers: the client by itself
// would ask the one that it was told is the controller, which may be gone with its voters.
func askForQuorum(ctx context.Context, client *kgo.Client) (*describedQuorum, error) {
	for _, b := range client.SeedBrokers() {
		if resp, err := b.Request(ctx, describeQuorumRequest()); err == nil {
			return quorumOf(resp.(*kmsg.DescribeQuorumResponse))
		}
	}
	resp, err := describeQuorumRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	return quorumOf(resp)
}

// quorumOf reads an answer.
func quorumOf(resp *kmsg.DescribeQuorumResponse) (*describedQuorum, error) {
	if err := refused("describe the quorum", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, failf("describe the quorum: the answer is not about it")
	}
	p := &resp.Topics[0].Partitions[0]
	if err := refused("describe the quorum", p.ErrorCode, p.ErrorMessage); err != nil {
		return nil, err
	}
	q := &describedQuorum{Leader: p.LeaderID, Term: p.LeaderEpoch, HighWatermark: p.HighWatermark}
	q.Voters = q.members(p.CurrentVoters, resp.Nodes)
	q.Learners = q.members(p.Observers, resp.Nodes)
	return q, nil
}

// wantController fails where nobody decides: what brokers say of one another is old then,
// and nothing can be moved. A cluster that has no such quorum is not asked for one.
func (a *app) wantController(ctx context.Context, client *kgo.Client) error {
	if _, err := describeQuorum(ctx, client); errors.Is(err, kerr.NotController) {
		return err
	}
	return nil
}

func (q *describedQuorum) members(
	states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState, nodes []kmsg.DescribeQuorumResponseNode,
) []quorumMember {
	out := []quorumMember{}
	for _, s := range states {
		m := quorumMember{
			ID: s.ReplicaID, Directory: directoryText(s.ReplicaDirectoryID), directory: s.ReplicaDirectoryID,
			Lag:         max(0, q.HighWatermark-s.LogEndOffset),
			LastContact: s.LastFetchTimestamp, LastCaughtUp: s.LastCaughtUpTimestamp,
		}
		for _, n := range nodes {
			if n.NodeID == s.ReplicaID && len(n.Listeners) > 0 {
				m.host, m.port = n.Listeners[0].Host, n.Listeners[0].Port
				m.Address = hostPort(m.host, int32(m.port))
			}
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b quorumMember) int { return int(a.ID) - int(b.ID) })
	return out
}

// directoryText prints the id of a data directory as Kafka's tools do.
func directoryText(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// refused is the failure of a code and message of the protocol, nil for none.
func refused(what string, code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	text := ""
	if message != nil {
		text = *message
	}
	return refusal(what, err, text)
}

func find(members []quorumMember, id int32) (quorumMember, bool) {
	i := slices.IndexFunc(members, func(m quorumMember) bool { return m.ID == id })
	if i < 0 {
		return quorumMember{}, false
	}
	return members[i], true
}

// idsOf lists members for a sentence.
func idsOf(members []quorumMember) []int32 {
	ids := make([]int32, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}

// namedBrokers names brokers in a sentence.
func namedBrokers(ids []int32) string {
	if len(ids) == 1 {
		return fmt.Sprintf("broker %d", ids[0])
	}
	return "brokers " + numbers(ids)
}

// numbers prints ids for a sentence.
func numbers(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ", ")
}

// votersFlag is the quorum as --voters takes it.
func (q *describedQuorum) votersFlag() string {
	var parts []string
	for _, m := range q.Voters {
		if m.Address != "" {
			parts = append(parts, fmt.Sprintf("%d@%s", m.ID, m.Address))
		}
	}
	return strings.Join(parts, ",")
}

// parseBroker reads a broker's id from the command line.
func parseBroker(text string) (int32, error) {
	var id int32
	if n, err := fmt.Sscan(text, &id); n != 1 || err != nil || id < 0 || fmt.Sprint(id) != text {
		return 0, usagef("%q is no broker's id", text).hint("strandline cluster describe shows them.")
	}
	return id, nil
}

// parseBrokers reads several, each once.
func parseBrokers(args []string) ([]int32, error) {
	var ids []int32
	for _, arg := range args {
		id, err := parseBroker(arg)
		if err != nil {
			return nil, err
		}
		if slices.Contains(ids, id) {
			return nil, usagef("broker %d is named twice", id)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// allBrokers lists the registered brokers, those that are down too.
func allBrokers(ctx context.Context, client *kgo.Client) ([]kmsg.DescribeClusterResponseBroker, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := refused("describe the cluster", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	slices.SortFunc(resp.Brokers, func(a, b kmsg.DescribeClusterResponseBroker) int { return int(a.NodeID) - int(b.NodeID) })
	return resp.Brokers, nil
}

// onCluster runs fn with a client that bounds single requests, and not the whole: for
// work that takes as long as it takes.
func (a *app) onCluster(
	ctx context.Context, fn func(ctx context.Context, client *kgo.Client, adm *kadm.Client) error,
) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	adm.SetTimeoutMillis(int32(min(a.flags.timeout.Milliseconds(), 1<<31-1)))
	return fn(ctx, client, adm)
}

// agree shows that something is about to be done and asks. Without a terminal to ask
// on, only --yes does it: errNotAsked says that it was not done.
func (a *app) agree(yes bool, question string) error {
	if !yes && !isTerminal(a.env.Stdin) {
		return errNotAsked
	}
	return a.confirm(yes, "%s", question)
}

// errNotAsked is that a plan was shown and not carried out.
const errNotAsked = endOfWork("not done: --yes carries it out")
