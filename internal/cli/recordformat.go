package cli

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/nearest"
)

const formatHelp = `A format is json, or a text with fields in braces:
  {topic} {partition} {offset} {key} {value} {headers} {header.NAME} {timestamp}
  {timestamp_ms} {key_size} {value_size}
{key}, {value} and {header.NAME} can be encoded: {value:hex}, {value:base64}, and {value:json}
for a quoted text. \t, \n, \0, \\, \{ and \} stand for themselves. A line end follows each record
unless --delimiter says otherwise.`

// appender appends one piece of a record's line.
type appender func(dst []byte, r *kgo.Record) []byte

// recordFormat prints records as a user's format says.
type recordFormat []appender

// append appends a record without a delimiter.
func (f recordFormat) append(dst []byte, r *kgo.Record) []byte {
	for _, piece := range f {
		dst = piece(dst, r)
	}
	return dst
}

// recordPrinter appends a record with all that belongs to its line.
type recordPrinter func(dst []byte, r *kgo.Record) ([]byte, error)

// delimited prints records with a delimiter behind each.
func (f recordFormat) delimited(delimiter []byte) recordPrinter {
	return func(dst []byte, r *kgo.Record) ([]byte, error) {
		return append(f.append(dst, r), delimiter...), nil
	}
}

// parseFormat reads a format. Bytes from records that go to a terminal are made
// visible.
func parseFormat(text string, terminal bool) (recordFormat, error) {
	var f recordFormat
	var literal []byte
	for text != "" {
		switch {
		case text[0] == '\\' && len(text) > 1:
			b, ok := unescape(text[1])
			if !ok {
				return nil, usagef("format: %q is no escape", text[:2]).hint(`Write \\ for a backslash.`)
			}
			literal = append(literal, b)
			text = text[2:]
		case text[0] == '{':
			end := strings.IndexByte(text, '}')
			if end < 0 {
				return nil, usagef("format: { has no }").hint(`Write \{ for a brace.`)
			}
			piece, err := parseField(text[1:end], terminal)
			if err != nil {
				return nil, err
			}
			f = append(f, literalPiece(literal), piece)
			literal, text = nil, text[end+1:]
		default:
			literal = append(literal, text[0])
			text = text[1:]
		}
	}
	return append(f, literalPiece(literal)), nil
}

func literalPiece(literal []byte) appender {
	return func(dst []byte, _ *kgo.Record) []byte { return append(dst, literal...) }
}

func unescape(c byte) (byte, bool) {
	switch c {
	case 'n':
		return '\n', true
	case 't':
		return '\t', true
	case 'r':
		return '\r', true
	case '0':
		return 0, true
	case '\\', '{', '}':
		return c, true
	}
	return 0, false
}

// parseDelimiter reads the value of --delimiter.
func parseDelimiter(text string) ([]byte, error) {
	var d []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' && i+1 < len(text) {
			i++
			var ok bool
			if c, ok = unescape(text[i]); !ok {
				return nil, usagef("--delimiter: %q is no escape", text[i-1:i+1]).hint(`Use \n, \t, \0 or \\.`)
			}
		}
		d = append(d, c)
	}
	return d, nil
}

func numberFields() map[string]func(*kgo.Record) int64 {
	return map[string]func(*kgo.Record) int64{
		"partition":    func(r *kgo.Record) int64 { return int64(r.Partition) },
		"offset":       func(r *kgo.Record) int64 { return r.Offset },
		"timestamp_ms": func(r *kgo.Record) int64 { return r.Timestamp.UnixMilli() },
		"key_size":     func(r *kgo.Record) int64 { return int64(len(r.Key)) },
		"value_size":   func(r *kgo.Record) int64 { return int64(len(r.Value)) },
	}
}

func byteFields() map[string]func(*kgo.Record) []byte {
	return map[string]func(*kgo.Record) []byte{
		"key":       func(r *kgo.Record) []byte { return r.Key },
		"value":     func(r *kgo.Record) []byte { return r.Value },
		"topic":     func(r *kgo.Record) []byte { return []byte(r.Topic) },
		"timestamp": func(r *kgo.Record) []byte { return []byte(timestamp(r.Timestamp)) },
		"headers":   formatHeaders,
	}
}

// parseField reads what stands between two braces.
func parseField(field string, terminal bool) (appender, error) {
	name, encoding, _ := strings.Cut(field, ":")
	if number := numberFields()[name]; number != nil && encoding == "" {
		return func(dst []byte, r *kgo.Record) []byte { return strconv.AppendInt(dst, number(r), 10) },
			nil
	}
	get := byteFields()[name]
	if header, ok := strings.CutPrefix(name, "header."); ok {
		get = func(r *kgo.Record) []byte { return findHeader(r, header) }
	}
	if get == nil {
		f := usagef("format: there is no field {%s}", field)
		known := slices.Concat(slices.Collect(maps.Keys(numberFields())),
			slices.Collect(maps.Keys(byteFields())))
		if near := nearest.To(name, slices.Values(known)); near != "" {
			f.hint("Did you mean {%s}?", near)
		}
		slices.Sort(known)
		return nil, f.hint("The fields are %s and header.NAME.", strings.Join(known, ", "))
	}
	return encodeField(get, encoding, terminal)
}

func encodeField(get func(*kgo.Record) []byte, encoding string, terminal bool) (appender, error) {
	switch encoding {
	case "":
		if terminal {
			return func(dst []byte, r *kgo.Record) []byte { return append(dst, visible(string(get(r)))...) },
				nil
		}
		return func(dst []byte, r *kgo.Record) []byte { return append(dst, get(r)...) }, nil
	case "hex":
		return func(dst []byte, r *kgo.Record) []byte { return hex.AppendEncode(dst, get(r)) }, nil
	case "base64":
		return func(dst []byte, r *kgo.Record) []byte {
			return base64.StdEncoding.AppendEncode(dst,
				get(r))
		}, nil
	case "json":
		return func(dst []byte, r *kgo.Record) []byte { return appendQuoted(dst, get(r)) }, nil
	}
	return nil, usagef("format: there is no encoding %q",
		encoding).hint("The encodings are hex, base64 and json.")
}

func appendQuoted(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	b, err := json.Marshal(string(value))
	if err != nil {
		return append(dst, "null"...) // A string is always marshalled.
	}
	return append(dst, b...)
}

func findHeader(r *kgo.Record, key string) []byte {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

func formatHeaders(r *kgo.Record) []byte {
	var b []byte
	for i, h := range r.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, h.Key...)
		b = append(b, '=')
		b = append(b, h.Value...)
	}
	return b
}

// personFormat is how records look on a terminal: where a record stands, its key
// and its value.
func personFormat(p painter) recordFormat {
	return recordFormat{func(dst []byte, r *kgo.Record) []byte {
		dst = append(dst, p.dim(strconv.Itoa(int(r.Partition))+":"+strconv.FormatInt(r.Offset, 10))...)
		dst = append(dst, "  "...)
		if r.Key != nil {
			dst = append(dst, p.cyan(visible(string(r.Key)))...)
			dst = append(dst, "  "...)
		}
		if r.Value == nil {
			return append(dst, p.dim("null")...)
		}
		return append(dst, visible(string(r.Value))...)
	}}
}
