package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Check says which values of the right type are valid. The zero Check takes all.
type Check struct {
	min, max float64 // Of a number; equal for no bounds.
	oneOf    []string
	many     bool // Of oneOf, a list may have several.
	// also sees the text of a value that passed everything else, and returns what
	// is wrong with it.
	also func(value string) string
	say  string // What also wants, for documentation.
}

const unbounded = math.MaxInt64

func atLeast(low int64) Check       { return between(low, unbounded) }
func between(low, high int64) Check { return Check{min: float64(low), max: float64(high)} }
func oneOf(values ...string) Check  { return Check{oneOf: values} }
func anyOf(values ...string) Check  { return Check{oneOf: values, many: true} }
func ratio(low, high float64) Check { return Check{min: low, max: high} }
func checked(say string, also func(string) string) Check {
	return Check{also: also, say: say}
}

// scaled is the check of the same quantity in a larger unit.
func (c Check) scaled() Check {
	if c.max == unbounded {
		return Check{min: min(c.min, 1), max: unbounded}
	}
	return c
}

// String describes the valid values, for people.
func (c Check) String() string {
	switch {
	case c.say != "":
		return c.say
	case c.oneOf != nil && c.many:
		return "any of " + strings.Join(c.oneOf, ", ")
	case c.oneOf != nil:
		return "one of " + strings.Join(c.oneOf, ", ")
	case c.min == c.max:
		return ""
	case c.max == unbounded:
		return fmt.Sprintf("at least %s", number(c.min))
	}
	return fmt.Sprintf("%s to %s", number(c.min), number(c.max))
}

func number(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return fmt.Sprintf("%d", int64(f))
	}
	return fmt.Sprintf("%g", f)
}

// number says what is wrong with a number, or "".
func (c Check) number(f float64) string {
	if c.min != c.max && (f < c.min || f > c.max) {
		return "want " + c.String()
	}
	return ""
}

// item says what is wrong with a text or with an item of a list, or "".
func (c Check) item(s string) string {
	if c.oneOf != nil && !slices.Contains(c.oneOf, s) {
		return "want " + c.String()
	}
	return ""
}
