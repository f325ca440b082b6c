package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Sources are the values that were given to a broker, by layer, as text. A layer
// further down wins.
type Sources struct {
	Static         map[string]string // Flags, environment and configuration file.
	ClusterDynamic map[string]string // Set while running, for all brokers.
	BrokerDynamic  map[string]string // Set while running, for this broker.
}

// value returns an option's effective text and where it is from.
func (s Sources) value(o *Option) (text string, from Source, ok bool) {
	for _, layer := range s.layers() {
		if v, ok := layer.values[o.Name]; ok {
			return v, layer.source, true
		}
	}
	return o.Default, DefaultConfig, !o.NoDefault
}

type layer struct {
	source Source
	values map[string]string
}

// layers returns the layers, the one that wins first.
func (s Sources) layers() [3]layer {
	return [3]layer{
		{DynamicBrokerConfig, s.BrokerDynamic},
		{DynamicDefaultBrokerConfig, s.ClusterDynamic},
		{StaticBrokerConfig, s.Static},
	}
}

// Broker resolves the layers. The error joins one *ValueError for everything that
// is wrong; no broker may run with it.
func (s Sources) Broker() (*Broker, error) {
	var wrong []error
	for _, layer := range s.layers() {
		for _, name := range slices.Sorted(maps.Keys(layer.values)) {
			o, err := find(BrokerScope, name)
			if err == nil && o.Update == PerBroker && layer.source == StaticBrokerConfig {
				err = &ValueError{
					Scope: BrokerScope, Name: name, Value: layer.values[name],
					Reason: "all brokers must know it, so it is set while this one runs: change its configuration then",
				}
			}
			if err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	b := new(Broker)
	for o := range Options(BrokerScope) {
		if o.broker == nil || o.Of != "" {
			if text, _, ok := s.value(o); ok {
				_, err := o.parse(text)
				wrong = append(wrong, err)
			}
			continue
		}
		if text, _, ok := s.value(o); ok {
			wrong = append(wrong, o.assign(o.broker(b), text))
		}
	}
	for o := range Options(TopicScope) {
		wrong = append(wrong, s.assignTopicDefault(b, o))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// assignTopicDefault sets the default of a topic's option from the first of its
// synonyms that has a value.
func (s Sources) assignTopicDefault(b *Broker, o *Option) error {
	if o.topic == nil {
		return nil
	}
	for _, synonym := range o.Synonyms {
		row, _ := Lookup(BrokerScope, synonym.Name)
		if text, _, ok := s.value(row); ok {
			if _, err := row.parse(text); err != nil {
				return nil // Reported where the row itself was looked at.
			}
			return row.assign(row.broker(b), text)
		}
	}
	return o.assign(o.topic(&b.Topic), o.Default)
}

// check holds what binds several options together.
func (b *Broker) check() error {
	switch {
	case b.QueuedMaxRequestBytes < int64(b.SocketRequestMaxBytes):
		return fmt.Errorf("queued.max.request.bytes (%d) is below socket.request.max.bytes (%d): "+
			"the largest request could never be read; raise the one or lower the other",
			b.QueuedMaxRequestBytes, b.SocketRequestMaxBytes)
	case b.GroupMinSessionTimeout > b.GroupMaxSessionTimeout:
		return fmt.Errorf("group.min.session.timeout.ms (%d) is above "+
			"group.max.session.timeout.ms (%d)",
			b.GroupMinSessionTimeout.Milliseconds(), b.GroupMaxSessionTimeout.Milliseconds())
	case b.SessionTimeout < 2*b.HeartbeatInterval:
		return fmt.Errorf("broker.session.timeout.ms (%d) is below twice "+
			"broker.heartbeat.interval.ms (%d): one heartbeat that is late would have the broker "+
			"held for failed", b.SessionTimeout.Milliseconds(), b.HeartbeatInterval.Milliseconds())
	case b.ReplicaFetchWaitMax >= b.ReplicaLagTimeMax:
		return fmt.Errorf("replica.fetch.wait.max.ms (%d) is not below replica.lag.time.max.ms "+
			"(%d): a follower with nothing to copy would be held for slow",
			b.ReplicaFetchWaitMax.Milliseconds(), b.ReplicaLagTimeMax.Milliseconds())
	}
	return b.Topic.check()
}

// check holds what binds several options of a topic together.
func (t *Topic) check() error {
	if t.MinCompactionLagMs > t.MaxCompactionLagMs {
		return &ValueError{
			Scope: TopicScope, Name: "min.compaction.lag.ms",
			Value: fmt.Sprint(t.MinCompactionLagMs),
			Reason: fmt.Sprintf("it may not exceed max.compaction.lag.ms, which is %d",
				t.MaxCompactionLagMs),
		}
	}
	return nil
}

// ResolveTopic returns a topic's configuration: its own values over the broker's
// defaults. Values are validated before they are stored; one that is not valid
// here, because another version stored it, leaves the default in place.
func ResolveTopic(b *Broker, overrides map[string]string) *Topic {
	t := b.Topic
	for name, text := range overrides {
		if o, ok := Lookup(TopicScope, name); ok && o.topic != nil {
			_ = o.assign(o.topic(&t), text)
		}
	}
	return &t
}

// ValidateTopic checks a topic's own values, each and all together. The error is
// the first *ValueError in the order of names.
func ValidateTopic(b *Broker, overrides map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if err := Validate(TopicScope, name, overrides[name]); err != nil {
			return err
		}
	}
	return ResolveTopic(b, overrides).check()
}

// Default returns the configuration of a broker that was given no values.
func Default() *Broker {
	b, err := Sources{}.Broker()
	if err != nil {
		panic(fmt.Sprintf("config: the defaults are not valid: %v", err))
	}
	return b
}
