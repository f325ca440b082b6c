package cli

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// devLook is what the nodes said when they were asked last.
type devLook struct {
	asked   time.Time // When it began.
	at      time.Time
	answers []bool // By node: it answered.
	// What follows is from the node that knows most; known says that one answered.
	known      bool
	brokers    []int32 // Those that clients are told of.
	controller int32   // -1 if nobody is known.
	topics     []devTopic
	news       int64 // The sum of leader epochs: who knows most has the greatest.
}

// devTopic is a topic by its partitions.
type devTopic struct {
	name  string
	parts []devPart
}

type devPart struct {
	leader        int32 // -1 for none.
	isr, replicas int
}

// devWatch asks the nodes again and again.
type devWatch struct {
	specs   []devSpec
	clients []*kgo.Client // For metadata, one for each node; nil until it is needed.
	quorum  []*kgo.Client // For who leads the quorum: that may wait for another node.
}

const (
	// devInterval is between two looks, and devWait how long a node may take.
	devInterval = 100 * time.Millisecond
	devWait     = 300 * time.Millisecond
)

func newDevWatch(specs []devSpec) *devWatch {
	return &devWatch{specs: specs, clients: make([]*kgo.Client, len(specs)), quorum: make([]*kgo.Client, len(specs))}
}

// run sends what it sees until ctx ends.
func (w *devWatch) run(ctx context.Context, looks chan<- devLook) {
	defer w.close()
	tick := time.NewTicker(devInterval)
	defer tick.Stop()
	for {
		l := w.look(ctx)
		select {
		case looks <- l:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *devWatch) close() {
	for _, c := range slices.Concat(w.clients, w.quorum) {
		if c != nil {
			c.Close()
		}
	}
}

// look asks all nodes at the same time and takes the answer with most news.
func (w *devWatch) look(ctx context.Context) devLook {
	asked, answers := time.Now(), make([]*kmsg.MetadataResponse, len(w.specs))
	var all sync.WaitGroup
	for i := range w.specs {
		all.Go(func() {
			req := kmsg.NewPtrMetadataRequest() // No topics stand for all of them.
			if resp, ok := ask(ctx, w.specs[i].address, &w.clients[i], req).(*kmsg.MetadataResponse); ok {
				answers[i] = resp
			}
		})
	}
	all.Wait()
	l := devLook{asked: asked, at: time.Now(), answers: make([]bool, len(answers)), controller: -1}
	best := -1
	for i, resp := range answers {
		if l.answers[i] = resp != nil; resp == nil {
			continue
		}
		if other := lookAt(resp); best < 0 || other.news > l.news {
			best = i
			l.known, l.brokers, l.topics, l.news = true, other.brokers, other.topics, other.news
		}
	}
	if best >= 0 {
		l.controller = w.controller(ctx, best)
	}
	return l
}

// lookAt reads what one node knows.
func lookAt(resp *kmsg.MetadataResponse) (l devLook) {
	for _, b := range resp.Brokers {
		l.brokers = append(l.brokers, b.NodeID)
	}
	slices.Sort(l.brokers)
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		topic := devTopic{name: *t.Topic, parts: make([]devPart, len(t.Partitions))}
		for _, p := range t.Partitions {
			if int(p.Partition) < len(topic.parts) && p.Partition >= 0 {
				topic.parts[p.Partition] = devPart{p.Leader, len(p.ISR), len(p.Replicas)}
			}
			l.news += int64(p.LeaderEpoch)
		}
		l.topics = append(l.topics, topic)
	}
	slices.SortFunc(l.topics, func(a, b devTopic) int { return cmp.Compare(a.name, b.name) })
	return l
}

// controller asks a node who leads the quorum.
func (w *devWatch) controller(ctx context.Context, node int) int32 {
	resp, ok := ask(ctx, w.specs[node].address, &w.quorum[node], describeQuorumRequest()).(*kmsg.DescribeQuorumResponse)
	if !ok {
		// It may wait for one that is gone, and would hold up what is asked next.
		if c := w.quorum[node]; c != nil {
			c.Close()
			w.quorum[node] = nil
		}
		return -1
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1
	}
	return resp.Topics[0].Partitions[0].LeaderID
}

// ask sends a request to the node at an address; nil is no answer.
func ask(ctx context.Context, address string, client **kgo.Client, req kmsg.Request) kmsg.Response {
	if *client == nil {
		c, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ClientID("strandline-dev"), kgo.DialTimeout(devWait),
			kgo.DisableClientMetrics())
		if err != nil {
			return nil
		}
		*client = c
	}
	ctx, cancel := context.WithTimeout(ctx, devWait)
	defer cancel()
	resp, err := (*client).SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil
	}
	return resp
}
