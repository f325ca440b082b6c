package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// style is how a text looks on a terminal.
type style int8

const (
	stylePlain style = iota
	styleDim
	styleBold
	styleRed
	styleGreen
	styleYellow
	styleCyan
)

// painter colours text if it is true.
type painter bool

func (p painter) apply(s style, text string) string {
	if !p || s == stylePlain || text == "" {
		return text
	}
	code := [...]string{
		styleDim: "2", styleBold: "1", styleRed: "31", styleGreen: "32",
		styleYellow: "33", styleCyan: "36",
	}[s]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) dim(s string) string    { return p.apply(styleDim, s) }
func (p painter) bold(s string) string   { return p.apply(styleBold, s) }
func (p painter) red(s string) string    { return p.apply(styleRed, s) }
func (p painter) yellow(s string) string { return p.apply(styleYellow, s) }
func (p painter) cyan(s string) string   { return p.apply(styleCyan, s) }

// visible returns a text from the wire in a form that cannot command a
// terminal: control characters and bytes that are not UTF-8 are escaped.
func visible(s string) string {
	if isVisible(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case !printable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func isVisible(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !printable(r) {
			return false
		}
	}
	return true
}

// printable is unicode.IsPrint and the spaces that are no line ends; characters
// that turn the direction of writing are not printable.
func printable(r rune) bool {
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r)
}

// thousands prints a number with commas.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// byteSize prints a number of bytes with a unit.
func byteSize(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < 4 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[unit])
}

// plural prints a count with its noun.
func plural[N ~int | ~int32 | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(int64(n)) + " " + noun + "s"
}

// roundDuration prints a duration with about three digits.
func roundDuration(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// timestamp prints a record's time, or "-" if it has none.
func timestamp(t time.Time) string {
	if t.UnixMilli() < 0 {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
