package metadata

import (
	"cmp"
	"maps"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// delta lists what the editor changed.
func (e *editor) delta(to *Image) Delta {
	d := Delta{ProducerIDs: e.from.nextProducerID != to.nextProducerID}
	for id := range e.touched {
		if c := (TopicChange{e.from.TopicByID(id), to.TopicByID(id)}); c.Old != c.New {
			d.Topics = append(d.Topics, c)
		}
	}
	d.Brokers, d.Configs = e.brokers, e.configs
	d.tidy()
	return d
}

// Diff lists what differs between any two images.
func Diff(from, to *Image) Delta {
	d := Delta{ProducerIDs: from.nextProducerID != to.nextProducerID}
	for t := range from.topics.all() {
		if c := (TopicChange{t, to.TopicByID(t.ID)}); c.Old != c.New {
			d.Topics = append(d.Topics, c)
		}
	}
	for t := range to.topics.all() {
		if from.TopicByID(t.ID) == nil {
			d.Topics = append(d.Topics, TopicChange{New: t})
		}
	}
	for _, b := range from.brokers {
		d.Brokers = append(d.Brokers, b.ID)
	}
	for _, b := range to.brokers {
		d.Brokers = append(d.Brokers, b.ID)
	}
	d.Brokers = slices.DeleteFunc(d.Brokers, func(id kafka.BrokerID) bool {
		a, _ := from.Broker(id)
		b, _ := to.Broker(id)
		return a.Epoch == b.Epoch && a.Fenced == b.Fenced && a.ShuttingDown == b.ShuttingDown
	})
	d.Configs = slices.AppendSeq(d.Configs, maps.Keys(from.configs))
	d.Configs = slices.AppendSeq(d.Configs, maps.Keys(to.configs))
	d.Configs = slices.DeleteFunc(d.Configs, func(r Resource) bool {
		return maps.Equal(from.configs[r], to.configs[r])
	})
	d.tidy()
	return d
}

// tidy sorts everything and removes what is there twice.
func (d *Delta) tidy() {
	slices.SortFunc(d.Topics, func(a, b TopicChange) int {
		return cmp.Or(cmp.Compare(a.name(), b.name()), b.gone()-a.gone())
	})
	slices.Sort(d.Brokers)
	d.Brokers = slices.Compact(d.Brokers)
	slices.SortFunc(d.Configs, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	d.Configs = slices.Compact(d.Configs)
}

func (c TopicChange) name() string {
	if c.New != nil {
		return c.New.Name
	}
	return c.Old.Name
}

// gone is 1 for a deletion.
func (c TopicChange) gone() int {
	if c.New == nil {
		return 1
	}
	return 0
}
