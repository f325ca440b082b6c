package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ValueError says that an option does not exist here or that a value is not
// valid for it.
type ValueError struct {
	Scope   Scope
	Name    string
	Value   string
	Unknown bool // There is no such option.
	Reason  string
}

// Error implements error.
func (e *ValueError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("unknown %s option %q: %s", e.Scope, clip(e.Name), e.Reason)
	}
	return fmt.Sprintf("invalid value %q for %s: %s", clip(e.Value), e.Name, e.Reason)
}

// clip bounds what a message repeats of a stranger's text.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// Known returns why there is no such option, as a *ValueError, or nil.
func Known(scope Scope, name string) error {
	_, err := find(scope, name)
	return err
}

// Validate checks that an option exists in the scope and that value is valid for
// it. The error is a *ValueError.
func Validate(scope Scope, name, value string) error {
	o, err := find(scope, name)
	if err != nil {
		return err
	}
	_, err = o.parse(value)
	return err
}

func find(scope Scope, name string) (*Option, error) {
	if o, ok := Lookup(scope, name); ok {
		return o, nil
	}
	return nil, &ValueError{
		Scope: scope, Name: name, Unknown: true, Reason: whyUnknown(scope, name),
	}
}

// parse turns text into a bool, an int64, a float64, a string or a []string, as
// Kafka's ConfigDef does: space around a value does not count.
func (o *Option) parse(text string) (any, error) {
	value, wrong := o.parseType(strings.TrimSpace(text))
	if wrong == "" && o.Check.also != nil {
		wrong = o.Check.also(strings.TrimSpace(text))
	}
	if wrong != "" {
		return nil, &ValueError{Scope: o.Scope, Name: o.Name, Value: text, Reason: wrong}
	}
	return value, nil
}

func (o *Option) parseType(text string) (value any, wrong string) {
	switch o.Type {
	case Boolean:
		switch {
		case strings.EqualFold(text, "true"):
			return true, o.Check.item("true")
		case strings.EqualFold(text, "false"):
			return false, o.Check.item("false")
		}
		return nil, "want true or false"
	case Short, Int, Long:
		return o.parseInteger(text)
	case Double:
		return o.parseDouble(text)
	case List:
		items := SplitList(text)
		for _, item := range items {
			if item == "" {
				return nil, "an item of the list is empty"
			}
			if wrong := o.Check.item(item); wrong != "" {
				return nil, wrong
			}
		}
		return items, ""
	default:
		return text, o.Check.item(text)
	}
}

func (o *Option) parseInteger(text string) (any, string) {
	bits := map[Type]int{Short: 16, Int: 32, Long: 64}[o.Type]
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return nil, fmt.Sprintf("want a whole number of at most %d bits", bits)
	}
	return n, o.Check.number(float64(n))
}

func (o *Option) parseDouble(text string) (any, string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(text, "xX_") {
		return nil, "want a number"
	}
	return f, o.Check.number(f)
}

// SplitList splits a list's text into its items; an empty text has none.
func SplitList(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// assign parses text into the field that a row is bound to.
func (o *Option) assign(field any, text string) error {
	value, err := o.parse(text)
	if err != nil {
		return err
	}
	switch field := field.(type) {
	case *bool:
		*field = value.(bool)
	case *string:
		*field = value.(string)
	case *[]string:
		*field = value.([]string)
	case *float64:
		*field = value.(float64)
	case *int16:
		*field = int16(value.(int64))
	case *int32:
		*field = int32(value.(int64))
	case *int64:
		*field = o.scale(value.(int64))
	case *time.Duration:
		*field = o.duration(value.(int64))
	case *cleanupPolicy:
		*field = parseCleanup(value.([]string))
	case *TimestampType:
		*field = TimestampType(value.(string))
	case *[]Listener:
		*field, err = ParseListeners(value.([]string))
	default:
		panic(fmt.Sprintf("config: %s is bound to a %T", o.Name, field))
	}
	return err
}

// scale converts a synonym's value to the unit of its topic option. A negative
// value means "no limit" in every unit.
func (o *Option) scale(n int64) int64 {
	switch {
	case o.factor <= 1:
		return n
	case n < 0:
		return -1
	case n > math.MaxInt64/o.factor:
		return math.MaxInt64
	}
	return n * o.factor
}

// duration reads a number in the unit that the option's name ends with. What does
// not fit a Duration, some 292 years, is as good as for ever.
func (o *Option) duration(n int64) time.Duration {
	unit := time.Millisecond
	switch {
	case strings.HasSuffix(o.Name, ".minutes"):
		unit = time.Minute
	case strings.HasSuffix(o.Name, ".seconds"):
		unit = time.Second
	}
	if n > math.MaxInt64/int64(unit) {
		return math.MaxInt64
	}
	return time.Duration(max(n, -1)) * unit
}

// inTopicUnit is a synonym's value as its topic option would be written.
func (o *Option) inTopicUnit(text string) string {
	if o.factor <= 1 {
		return text
	}
	value, err := o.parse(text)
	if err != nil {
		return text
	}
	return strconv.FormatInt(o.scale(value.(int64)), 10)
}
