package config

// Source says where a value is from; the numbers are those of DescribeConfigs.
type Source int8

// The sources.
const (
	DynamicTopicConfig         Source = 1
	DynamicBrokerConfig        Source = 2
	DynamicDefaultBrokerConfig Source = 3
	StaticBrokerConfig         Source = 4
	DefaultConfig              Source = 5
)

// Entry is an option as DescribeConfigs shows it.
type Entry struct {
	Option   *Option
	Value    *string // Nil when there is none, or it is sensitive.
	Source   Source
	ReadOnly bool
	// Synonyms are all places that give the value, the one that counts first.
	Synonyms []EntrySynonym
}

// EntrySynonym is one place that gives an entry's value.
type EntrySynonym struct {
	Name   string
	Value  *string
	Source Source
}

// DescribeBroker lists a broker's options in the order of their names.
func (s Sources) DescribeBroker() []Entry {
	out := make([]Entry, 0, len(theTable.sorted[BrokerScope]))
	for o := range Options(BrokerScope) {
		text, from, ok := s.value(o)
		e := Entry{
			Option: o, Value: o.shown(text, ok), Source: from, ReadOnly: o.Update == ReadOnly,
		}
		e.Synonyms = s.appendSynonyms(nil, o)
		if topic, ok := Lookup(TopicScope, o.Of); ok {
			// A synonym that comes after this one in the topic's list stands in for it.
			after := false
			for _, other := range topic.Synonyms {
				if after {
					row, _ := Lookup(BrokerScope, other.Name)
					e.Synonyms = s.appendSynonyms(e.Synonyms, row)
				}
				after = after || other.Name == o.Name
			}
		}
		out = append(out, e)
	}
	return out
}

// DescribeCluster lists the options that were set for all brokers at once.
func (s Sources) DescribeCluster() []Entry {
	var out []Entry
	for o := range Options(BrokerScope) {
		if text, ok := s.ClusterDynamic[o.Name]; ok {
			value := o.shown(text, true)
			out = append(out, Entry{
				Option: o, Value: value, Source: DynamicDefaultBrokerConfig,
				Synonyms: []EntrySynonym{{o.Name, value, DynamicDefaultBrokerConfig}},
			})
		}
	}
	return out
}

// DescribeTopic lists a topic's options in the order of their names, given the
// values of its own.
func (s Sources) DescribeTopic(overrides map[string]string) []Entry {
	out := make([]Entry, 0, len(theTable.sorted[TopicScope]))
	for o := range Options(TopicScope) {
		e := Entry{Option: o, Source: DefaultConfig, Value: o.shown(o.Default, !o.NoDefault)}
		for _, synonym := range o.Synonyms {
			row, _ := Lookup(BrokerScope, synonym.Name)
			e.Synonyms = s.appendSynonyms(e.Synonyms, row)
		}
		if text, from, ok := s.topicDefault(o); ok {
			e.Value, e.Source = o.shown(text, true), from
		}
		if text, ok := overrides[o.Name]; ok {
			e.Value, e.Source = o.shown(text, true), DynamicTopicConfig
			own := EntrySynonym{Name: o.Name, Value: e.Value, Source: DynamicTopicConfig}
			e.Synonyms = append([]EntrySynonym{own}, e.Synonyms...)
		}
		out = append(out, e)
	}
	return out
}

// topicDefault returns the default of a topic's option as the broker's options
// give it, in the topic option's unit.
func (s Sources) topicDefault(o *Option) (text string, from Source, ok bool) {
	for _, synonym := range o.Synonyms {
		row, _ := Lookup(BrokerScope, synonym.Name)
		if text, from, ok = s.value(row); ok {
			return row.inTopicUnit(text), from, true
		}
	}
	return "", 0, false
}

// appendSynonyms lists the layers that give a broker's option a value.
func (s Sources) appendSynonyms(to []EntrySynonym, o *Option) []EntrySynonym {
	for _, layer := range s.layers() {
		if text, ok := layer.values[o.Name]; ok {
			to = append(to, EntrySynonym{o.Name, o.shown(text, true), layer.source})
		}
	}
	if !o.NoDefault {
		to = append(to, EntrySynonym{o.Name, o.shown(o.Default, true), DefaultConfig})
	}
	return to
}

func (o *Option) shown(text string, ok bool) *string {
	if !ok || o.Sensitive {
		return nil
	}
	return &text
}
