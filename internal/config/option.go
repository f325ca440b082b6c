package config

import (
	"fmt"
	"iter"
	"slices"
)

// Type is the type of a value; the numbers are those of DescribeConfigs.
type Type int8

// The types that options have.
const (
	Boolean Type = 1
	String  Type = 2
	Int     Type = 3
	Short   Type = 4
	Long    Type = 5
	Double  Type = 6
	List    Type = 7
)

// String returns the name that Kafka's documentation uses.
func (t Type) String() string {
	switch t {
	case Boolean:
		return "boolean"
	case String:
		return "string"
	case Int:
		return "int"
	case Short:
		return "short"
	case Long:
		return "long"
	case Double:
		return "double"
	case List:
		return "list"
	}
	return fmt.Sprintf("Type(%d)", int8(t))
}

// Scope says whose option it is.
type Scope int8

// The scopes.
const (
	BrokerScope Scope = iota + 1
	TopicScope
)

// String returns "broker" or "topic".
func (s Scope) String() string {
	if s == TopicScope {
		return "topic"
	}
	return "broker"
}

// Update says how an option changes on a running broker.
type Update int8

// The ways to change an option; the names are those of Kafka's documentation.
const (
	ReadOnly    Update = iota // At start only.
	PerBroker                 // For one broker.
	ClusterWide               // For one broker, or for all of them at once.
)

// String returns Kafka's name of the update mode.
func (u Update) String() string {
	switch u {
	case PerBroker:
		return "per-broker"
	case ClusterWide:
		return "cluster-wide"
	default:
		return "read-only"
	}
}

// Option is a row of the table.
type Option struct {
	Name    string
	Type    Type
	Scope   Scope
	Default string // As text; meaningless where NoDefault.
	// NoDefault marks an option that has no value unless one is given.
	NoDefault bool
	Check     Check // What values are valid.
	Update    Update
	Sensitive bool // Never shown.
	// Stored marks an option that is validated, kept and shown, but that nothing
	// acts on in this version; Doc says why.
	Stored bool
	Doc    string
	// Synonyms are, for a topic's option, the broker's options that give its
	// default, the one that wins first.
	Synonyms []Synonym
	// Of is, for a broker's option that is a topic's default, that topic's
	// option.
	Of string

	factor int64 // What a synonym's value is multiplied by; 0 or 1 for not at all.
	topic  func(*Topic) any
	broker func(*Broker) any
}

// Synonym is the broker's option that gives the default of a topic's.
type Synonym struct {
	Name string
	// Factor converts to the topic option's unit, as hours to milliseconds.
	Factor int64
	Type   Type // Of the broker's option; the topic's where 0.
	// Default is the broker option's default; "" where it has none.
	Default string
}

// Lookup returns an option by its name.
func Lookup(scope Scope, name string) (*Option, bool) {
	o, ok := theTable.byName[scope][name]
	return o, ok
}

// Options returns the options of a scope in the order of their names.
func Options(scope Scope) iter.Seq[*Option] { return slices.Values(theTable.sorted[scope]) }

// table is the options, indexed. It is made once and never changed.
type table struct {
	byName map[Scope]map[string]*Option
	sorted map[Scope][]*Option
}

// theTable is constant after the package's initialisation.
var theTable = newTable(topicOptions(), brokerOptions())

func newTable(topic, broker []Option) *table {
	t := &table{byName: map[Scope]map[string]*Option{}, sorted: map[Scope][]*Option{}}
	for _, scope := range []Scope{TopicScope, BrokerScope} {
		t.byName[scope] = map[string]*Option{}
	}
	for i := range topic {
		topic[i].Scope = TopicScope
		t.add(&topic[i])
		for _, s := range topic[i].Synonyms {
			t.add(topic[i].asBrokerOption(s))
		}
	}
	for i := range broker {
		broker[i].Scope = BrokerScope
		t.add(&broker[i])
	}
	for scope, options := range t.sorted {
		slices.SortFunc(options, func(a, b *Option) int {
			if a.Name < b.Name {
				return -1
			}
			return 1
		})
		t.sorted[scope] = options
	}
	return t
}

func (t *table) add(o *Option) {
	if _, twice := t.byName[o.Scope][o.Name]; twice {
		panic("config: the table has " + o.Name + " twice")
	}
	t.byName[o.Scope][o.Name] = o
	t.sorted[o.Scope] = append(t.sorted[o.Scope], o)
}

// asBrokerOption makes the row of the broker's option that is the default of the
// topic's option o.
func (o *Option) asBrokerOption(s Synonym) *Option {
	row := &Option{
		Name: s.Name, Type: s.Type, Scope: BrokerScope, Default: s.Default,
		NoDefault: s.Default == "",
		Check:     o.Check, Update: ClusterWide, Stored: o.Stored, Of: o.Name, factor: s.Factor,
	}
	if row.Type == 0 {
		row.Type = o.Type
	}
	row.Doc = fmt.Sprintf("The default of the topic option %s.", o.Name)
	if s.Factor > 1 {
		row.Doc = fmt.Sprintf("The default of the topic option %s, in %s.",
			o.Name, unitName(s.Factor))
		row.Check = o.Check.scaled()
	}
	if o.Synonyms[0].Name != s.Name {
		row.Doc += " " + o.Synonyms[0].Name + " has the last word."
		row.Update = ReadOnly
	}
	if o.Stored {
		row.Doc += " " + o.Doc
	}
	field := o.topic
	row.broker = func(b *Broker) any { return field(&b.Topic) }
	return row
}

func unitName(factor int64) string {
	switch factor {
	case msPerHour:
		return "hours"
	case msPerMinute:
		return "minutes"
	}
	panic("config: a unit without a name")
}

const (
	msPerMinute = 60_000
	msPerHour   = 60 * msPerMinute
)
