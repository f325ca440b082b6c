package topics

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/nearest"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// Control is the way to the controller for whoever needs topics to be there. An
// error means that no decision was made, or that it is not known.
type Control interface {
	Image() *metadata.Image
	CreateTopics(context.Context, *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error)
}

// Admin is the way to the controller for what both protocols let a client do with
// topics.
type Admin interface {
	Control
	DeleteTopics(context.Context, *kmsg.DeleteTopicsRequest) (*kmsg.DeleteTopicsResponse, error)
	CreatePartitions(context.Context, *kmsg.CreatePartitionsRequest) (*kmsg.CreatePartitionsResponse, error)
	DescribeConfigs(context.Context, *kmsg.DescribeConfigsRequest) (*kmsg.DescribeConfigsResponse, error)
	IncrementalAlterConfigs(
		context.Context, *kmsg.IncrementalAlterConfigsRequest,
	) (*kmsg.IncrementalAlterConfigsResponse, error)
}

// Directory resolves topics and creates those that are asked for.
type Directory struct {
	Control    Control
	Broker     func() *config.Broker // The broker's settings as they are now.
	Partitions *partition.Table
	// EnsureOffsets creates __consumer_offsets, which has settings of its own.
	EnsureOffsets func(context.Context) error
	Logger        *slog.Logger

	views sync.Map // kafka.TopicID -> *View
}

// View is a topic as the data path needs it: names resolved, configuration
// typed. It is made once per change of the topic and not changed afterwards, but
// for the turn.
type View struct {
	Meta     *metadata.Topic
	Name     string
	Internal bool
	Config   *config.Topic

	broker *config.Broker
	table  *partition.Table
	turn   atomic.Uint32
}

// ByName returns the topic of a name. On failure the view has just the name that
// was asked for, which may alias a buffer: the view has a copy.
func (d *Directory) ByName(name string) (*View, kafka.Code) {
	if meta := d.Control.Image().Topic(name); meta != nil {
		return d.view(meta), kafka.ErrNone
	}
	return &View{Name: strings.Clone(name)}, kafka.ErrUnknownTopicOrPartition
}

// ByID returns the topic of an id, or an empty view.
func (d *Directory) ByID(id kafka.TopicID) (*View, kafka.Code) {
	if meta := d.Control.Image().TopicByID(id); meta != nil {
		return d.view(meta), kafka.ErrNone
	}
	return &View{}, kafka.ErrUnknownTopicID
}

func (d *Directory) view(meta *metadata.Topic) *View {
	broker := d.Broker()
	if v, ok := d.views.Load(meta.ID); ok {
		if view := v.(*View); view.Meta == meta && view.broker == broker {
			return view
		}
	}
	view := &View{
		Meta: meta, Name: meta.Name, Internal: metadata.IsInternal(meta.Name),
		Config: config.ResolveTopic(broker, meta.Config), broker: broker, table: d.Partitions,
	}
	d.views.Store(meta.ID, view)
	if d.Control.Image().TopicByID(meta.ID) == nil {
		d.Forget(meta.ID) // It was deleted since, and forgotten before it was kept here.
	}
	return view
}

// Forget drops what is kept of a deleted topic.
func (d *Directory) Forget(id kafka.TopicID) { d.views.Delete(id) }

// Nearest returns the topic whose name is most likely what was meant, or "".
func (d *Directory) Nearest(name string) string {
	const longest = 80 // Longer names are no slip of the pen, and dear to compare.
	if len(name) > longest {
		return ""
	}
	var names iter.Seq[string] = func(yield func(string) bool) {
		for t := range d.Control.Image().AllTopics() {
			if !metadata.IsInternal(t.Name) && !yield(t.Name) {
				return
			}
		}
	}
	return nearest.To(name, names)
}

// Partition returns the replica on this broker, or nil.
func (v *View) Partition(i int32) *partition.Partition {
	return v.table.GetByID(v.Meta.ID, i)
}

// NoPartition says why Partition returned nil.
func (v *View) NoPartition(i int32) (kafka.Code, string) {
	if n := len(v.Meta.Partitions); i < 0 || int(i) >= n {
		return kafka.ErrUnknownTopicOrPartition,
			fmt.Sprintf("topic %s has %s: there is no partition %d", v.Name, countPartitions(n), i)
	}
	return kafka.ErrNotLeaderOrFollower, "this broker has no replica of the partition: refresh the metadata"
}

// countPartitions says how many partitions there are, and how they are numbered.
func countPartitions(n int) string {
	if n == 1 {
		return "one partition, number 0"
	}
	return fmt.Sprintf("%d partitions, numbered from 0", n)
}

// Writable returns why clients may not write to the topic, or nil.
func (v *View) Writable() error {
	if !v.Internal {
		return nil
	}
	return &kafka.Error{
		Code:    kafka.ErrInvalidTopicException,
		Message: "topic " + v.Name + " is internal: only the broker writes to it",
	}
}

// NextInTurn returns the partition whose turn it is for a record that names none:
// one after the other, but for those without a leader.
func (v *View) NextInTurn() int32 {
	n := uint32(len(v.Meta.Partitions))
	first := v.turn.Add(1) - 1
	for i := range n {
		at := int32((first + i) % n)
		if v.Meta.Partitions[at].Leader != kafka.NoBroker {
			return at
		}
	}
	return int32(first % n)
}

// ProduceLimits are what the topic's configuration lets a producer send; codecs
// are those that the way of the batch allows, zero for all.
func (v *View) ProduceLimits(codecs record.CodecSet, now time.Time) record.ProduceLimits {
	t := v.Config
	return record.ProduceLimits{
		AllowedCodecs:        codecs,
		MaxBatchBytes:        int(t.MaxMessageBytes),
		MaxDecompressedBytes: int64(t.MaxDecompressedMessageBytes),
		NowMs:                now.UnixMilli(),
		TimestampBeforeMaxMs: t.MessageTimestampBeforeMaxMs,
		TimestampAfterMaxMs:  t.MessageTimestampAfterMaxMs,
		LogAppendTime:        t.LogAppendTime(),
		KeyRequired:          t.CleanupCompact,
	}
}

// Unknown words the refusal of a topic that is not there.
func Unknown(name string, id kafka.TopicID) string {
	if name == "" {
		return "no topic has the id " + id.String() + ": it was deleted, or never was; refresh the metadata"
	}
	return "there is no topic " + name + ": create it first"
}
