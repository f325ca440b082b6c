package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Proposer is what the quorum offers: decide runs on the loop of the leader, with
// every earlier decision in effect; Do returns after the entry was applied here. A
// decision without an entry changes nothing.
type Proposer interface {
	Do(ctx context.Context, decide func() (entry []byte, err error)) error
}

// Options make a ControlPlane.
type Options struct {
	Self kafka.BrokerID
	// Static are the values of options that this node was started with.
	Static map[string]string
	// Remote is the way to other brokers; nil on a node that is alone.
	Remote Remote
	// Random is where ids come from; the system's source by default.
	Random io.Reader
	// Hangs reports whether this broker's disk hangs, so that others are to lead in its
	// place; nil for never.
	Hangs func() bool
	// Full reports whether this broker's disk takes nothing more, so that others are to lead
	// as well; nil for never.
	Full func() bool
	// Stranded is called when this broker's disk Hangs, and again and again while this node
	// is OutOfTouch; nil for nobody. It must not block.
	Stranded func()
	Logger   *slog.Logger
}

// ControlPlane is this node's part in the cluster's metadata.
type ControlPlane struct {
	controller controller.Options
	log        *slog.Logger
	random     io.Reader
	proposer   Proposer
	remote     Remote
	hangs      func() bool
	full       func() bool
	stranded   func()
	watchers   []func(old, new *metadata.Image, d metadata.Delta)
	ids        producerIDs

	image atomic.Pointer[metadata.Image]
	// told is the last image that all watchers know; image may be ahead of it.
	told   atomic.Pointer[metadata.Image]
	broker atomic.Pointer[config.Broker]
	// published rings when there is a new image and those who watch know it,
	// elected when the quorum has another leader.
	published, elected bell
	// urgent rings when this broker has something to tell with a heartbeat.
	urgent     bell
	leadership atomic.Pointer[leadership]
	duty       duty
	// incarnation is this process's; nil before it registers with others.
	incarnation atomic.Pointer[[16]byte]
	applied     atomic.Int64 // Index of the last entry.
	toldUpTo    atomic.Int64 // Index of the last entry that all who watch know.
	// answered is when the active controller answered a heartbeat of this broker last; nil
	// before it did.
	answered atomic.Pointer[time.Time]
	// The disk, when the last heartbeat was sent.
	hung, filled atomic.Bool

	// The fields below belong to the quorum's loop.

	// state is what decisions see: the image and all that is staged on it.
	state  *controller.State
	staged []staged
	// watching says that the watchers are told of new images.
	watching bool
	// deleted are topics that went before anybody watched.
	deleted []metadata.TopicChange
}

// staged is an entry that was decided and is not committed yet.
type staged struct {
	entry []byte
	image *metadata.Image
	delta metadata.Delta
}

// New returns a control plane that knows nothing yet. The error says what is wrong
// with the static options.
func New(opt Options) (*ControlPlane, error) {
	c := &ControlPlane{
		log: opt.Logger, random: opt.Random, remote: opt.Remote,
		hangs: opt.Hangs, full: opt.Full, stranded: opt.Stranded, ids: newProducerIDs(),
		duty: duty{previous: kafka.NoBroker, refused: map[kafka.BrokerID][controller.Refusals]time.Time{}},
	}
	c.leadership.Store(&leadership{leader: kafka.NoBroker})
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.random == nil {
		c.random = rand.Reader
	}
	c.controller = controller.Options{Self: opt.Self, Static: opt.Static, NewTopicID: c.newTopicID}
	if c.remote != nil {
		c.controller.Seen = c.seen
	}
	empty := new(metadata.Image)
	broker, err := controller.Sources(opt.Static, opt.Self, empty).Broker()
	if err != nil {
		return nil, err
	}
	c.image.Store(empty)
	c.told.Store(empty)
	c.broker.Store(broker)
	return c, c.resetState()
}

// Attach sets the way to the quorum. It must be called once, before anything that
// decides.
func (c *ControlPlane) Attach(p Proposer) { c.proposer = p }

// OnImage has f called for every new image, one after the other, on the quorum's
// loop: f must not wait for a decision, and what it takes long for holds up all
// others. Image returns the new image by then. It must be called before the quorum
// runs.
//
// The first call comes when the broker has registered, for all that was
// learned until then at once: a log of thousands of entries is no thousands of
// steps. Its delta begins with the topics whose deletion was replayed, since a
// crash may have left files of theirs.
func (c *ControlPlane) OnImage(f func(old, new *metadata.Image, d metadata.Delta)) {
	c.watchers = append(c.watchers, f)
}

// Image returns the metadata that is committed, as this node knows it.
func (c *ControlPlane) Image() *metadata.Image { return c.image.Load() }

// BrokerConfig returns the configuration of this broker as it is now.
func (c *ControlPlane) BrokerConfig() *config.Broker { return c.broker.Load() }

// Apply implements quorum.Machine.
func (c *ControlPlane) Apply(index uint64, entry []byte) error {
	c.applied.Store(int64(index))
	if err := c.apply(index, entry); err != nil {
		return err
	}
	c.toldUpTo.Store(int64(index))
	return nil
}

func (c *ControlPlane) apply(index uint64, entry []byte) error {
	if len(c.staged) > 0 {
		next := c.staged[0]
		if !bytes.Equal(next.entry, entry) {
			return fmt.Errorf("metadata entry %d is not the one that was decided", index)
		}
		c.staged[0] = staged{}
		c.staged = c.staged[1:]
		c.publish(next.image, next.delta)
		return nil
	}
	delta, err := c.replay(entry)
	if err != nil {
		return fmt.Errorf("metadata entry %d: %w", index, err)
	}
	c.publish(c.state.Image(), delta)
	return nil
}

func (c *ControlPlane) replay(entry []byte) (metadata.Delta, error) {
	records, err := metadata.DecodeRecords(entry)
	if err != nil {
		return metadata.Delta{}, err
	}
	return c.state.Replay(records)
}

// Stage implements quorum.Stager: decisions that follow see the entry, and nobody
// else.
func (c *ControlPlane) Stage(entry []byte) error {
	delta, err := c.replay(entry)
	if err != nil {
		return fmt.Errorf("stage metadata entry: %w", err)
	}
	c.staged = append(c.staged, staged{entry, c.state.Image(), delta})
	return nil
}

// Unstage implements quorum.Stager: what was staged and not applied is forgotten.
func (c *ControlPlane) Unstage() {
	if len(c.staged) == 0 {
		return
	}
	if err := c.resetState(); err != nil {
		panic(fmt.Sprintf("controlplane: the options resolved before: %v", err))
	}
}

// resetState makes decisions see the published image alone.
func (c *ControlPlane) resetState() (err error) {
	c.staged = nil
	c.state, err = controller.New(c.controller, c.image.Load())
	return err
}

// Snapshot implements quorum.Machine.
func (c *ControlPlane) Snapshot() ([]byte, error) { return c.image.Load().AppendSnapshot(nil), nil }

// Restore implements quorum.Machine.
func (c *ControlPlane) Restore(index uint64, data []byte) error {
	image, err := metadata.DecodeSnapshot(data)
	if err != nil {
		return fmt.Errorf("restore metadata: %w", err)
	}
	state, err := controller.New(c.controller, image)
	if err != nil {
		return fmt.Errorf("restore metadata: %w", err)
	}
	c.state, c.staged = state, nil
	c.applied.Store(int64(index))
	c.publish(image, metadata.Diff(c.image.Load(), image))
	c.toldUpTo.Store(int64(index))
	return nil
}

// publish makes an image the current one.
func (c *ControlPlane) publish(image *metadata.Image, delta metadata.Delta) {
	if len(delta.Configs) > 0 {
		c.configure(image)
	}
	c.image.Store(image)
	defer c.published.ring()
	if len(delta.Brokers) > 0 {
		c.duty.registered(delta.Brokers)
	}
	if c.watching {
		c.show(image, delta)
		return
	}
	for _, change := range delta.Topics {
		if change.New == nil {
			c.deleted = append(c.deleted, change)
		}
	}
	if b, ok := image.Broker(c.controller.Self); ok {
		if own := c.incarnation.Load(); own != nil && b.Incarnation == *own {
			c.watch()
		}
	}
}

// show tells the watchers of an image.
func (c *ControlPlane) show(image *metadata.Image, delta metadata.Delta) {
	old := c.told.Load()
	for _, f := range c.watchers {
		f(old, image, delta)
	}
	c.told.Store(image)
}

// watch begins to tell the watchers of images.
func (c *ControlPlane) watch() {
	if c.watching {
		return
	}
	c.watching = true
	delta := metadata.Diff(c.told.Load(), c.image.Load())
	delta.Topics = append(c.deleted, delta.Topics...)
	c.deleted = nil
	c.show(c.image.Load(), delta)
}

// configure resolves the broker's configuration anew.
func (c *ControlPlane) configure(image *metadata.Image) {
	b, err := controller.Sources(c.controller.Static, c.controller.Self, image).Broker()
	if err != nil {
		c.log.Error("configuration of the broker is not valid here; the last one stays", "error", err)
		return
	}
	c.broker.Store(b)
}
