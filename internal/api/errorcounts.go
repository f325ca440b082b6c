package api

import (
	"iter"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// The error codes that are counted: the protocol's own, and one more for any
// other.
const (
	firstCode  = int(kafka.ErrUnknownServerError)
	lastCode   = 160
	countCodes = lastCode - firstCode + 2
)

// errorCounts count the error codes in answers, per request. An answer without
// an error costs nothing but, where the code stands in a kmsg response, a look
// at its error fields.
type errorCounts struct {
	// rows is indexed by key and made before the first request.
	rows []*errorRow
}

// errorRow is the counts of one request.
type errorRow struct {
	fields *errorFields
	counts [countCodes]atomic.Uint64
}

// add makes the row of a request.
func (c *errorCounts) add(key kmsg.Key) {
	if c.rows == nil {
		c.rows = make([]*errorRow, kmsg.MaxKey+1)
	}
	c.rows[key.Int16()] = &errorRow{fields: errorFieldsOf(reflect.TypeOf(kmsg.ResponseForKey(key.Int16())).Elem())}
}

// note counts one code. Success is not counted: it is what the number of
// requests tells.
func (c *errorCounts) note(key int16, code kafka.Code) {
	if code == kafka.ErrNone {
		return
	}
	i := int(code) - firstCode
	if i < 0 || i >= countCodes-1 {
		i = countCodes - 1
	}
	c.rows[key].counts[i].Add(1)
}

// noteAll counts the codes in a response, and cuts its messages to a length that fits.
func (c *errorCounts) noteAll(key int16, resp kmsg.Response) {
	if c == nil || int(key) >= len(c.rows) || c.rows[key] == nil {
		return // In tests of a memory alone.
	}
	if fields := c.rows[key].fields; fields != nil {
		fields.walk(reflect.ValueOf(resp).Elem(), func(code kafka.Code) { c.note(key, code) })
	}
}

// ErrorCount is how often answers to a request had an error code.
type ErrorCount struct {
	Key   int16
	Code  kafka.Code
	Other bool // Code stands for all that are not the protocol's.
	Count uint64
}

// ErrorCounts returns the error codes that answers had since the start.
func (s *Services) ErrorCounts() iter.Seq[ErrorCount] {
	return func(yield func(ErrorCount) bool) {
		for key, row := range s.errors.rows {
			if row == nil {
				continue
			}
			for i := range row.counts {
				n := row.counts[i].Load()
				other := i == countCodes-1
				if n > 0 && !yield(ErrorCount{int16(key), kafka.Code(i + firstCode), other, n}) {
					return
				}
			}
		}
	}
}

// Name returns Kafka's name of a request, such as ListOffsets.
func Name(key int16) string {
	return strings.NewReplacer("ID", "Id", "ACL", "Acl").Replace(kmsg.NameForKey(key))
}

// errorFields says where in a message the error codes stand, and the words beside them. It
// is made once per type, so that an answer is not searched but only looked at.
type errorFields struct {
	code    int // The field ErrorCode, or -1.
	message int // The field ErrorMessage, or -1.
	subs    []errorSub
}

// errorSub is a field that holds error codes further down.
type errorSub struct {
	field  int
	fields *errorFields
}

// errorFieldsOf returns nil for a type without error codes.
func errorFieldsOf(t reflect.Type) *errorFields {
	if t.Kind() != reflect.Struct {
		return nil
	}
	f := &errorFields{code: -1, message: -1}
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Name == "ErrorCode" && field.Type.Kind() == reflect.Int16 {
			f.code = i
			continue
		}
		if field.Name == "ErrorMessage" && field.Type == reflect.TypeFor[*string]() {
			f.message = i
			continue
		}
		below := field.Type
		if below.Kind() == reflect.Slice || below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if sub := errorFieldsOf(below); sub != nil {
			f.subs = append(f.subs, errorSub{i, sub})
		}
	}
	if f.code < 0 && len(f.subs) == 0 {
		return nil
	}
	return f
}

// maxMessage is as long as an error's message gets. It may quote what was asked, which may be
// as long as any string of the protocol: with words around it, it would be none any more.
const maxMessage = 4 << 10

// shortened cuts an error's message to a length that fits.
func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// walk calls fn for each error code of a message, and shortens the words beside them.
func (f *errorFields) walk(v reflect.Value, fn func(kafka.Code)) {
	if f.message >= 0 {
		if message := v.Field(f.message); !message.IsNil() && message.Elem().Len() > maxMessage {
			message.Set(reflect.ValueOf(ptr(shortened(message.Elem().String()))))
		}
	}
	if f.code >= 0 {
		fn(kafka.Code(v.Field(f.code).Int()))
	}
	for _, s := range f.subs {
		switch below := v.Field(s.field); below.Kind() {
		case reflect.Slice:
			for i := range below.Len() {
				s.fields.walk(below.Index(i), fn)
			}
		case reflect.Pointer:
			if !below.IsNil() {
				s.fields.walk(below.Elem(), fn)
			}
		default:
			s.fields.walk(below, fn)
		}
	}
}
