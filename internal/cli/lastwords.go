package cli

import (
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lastWords are what brokers answered last to what was produced, by partition. The client
// tries again in silence for as long as there is hope, and when the time is up, whoever
// waited wants to know what stood in the way.
//
// The client tells it to its log alone, in a line for each answer, as in
//
//	orders[0{retrying@-1,1(KAFKA_STORAGE_ERROR: Disk error ...)}, 1{17=>18}]
//
// so this is a kgo.Logger. It is safe for use by the client's goroutines.
type lastWords struct {
	next kgo.Logger // Hears everything too; may be nil.

	mu   sync.Mutex
	said map[int32]*kerr.Error
}

func newLastWords(next kgo.Logger) *lastWords {
	return &lastWords{next: next, said: map[int32]*kerr.Error{}}
}

// Level implements kgo.Logger.
func (w *lastWords) Level() kgo.LogLevel { return kgo.LogLevelDebug }

// Log implements kgo.Logger.
func (w *lastWords) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if w.next != nil {
		w.next.Log(level, msg, keyvals...)
	}
	if msg != "produced" {
		return
	}
	for i := 1; i < len(keyvals); i += 2 {
		if answer, ok := keyvals[i].(string); ok && keyvals[i-1] == "to" {
			w.hear(answer)
		}
	}
}

// hear takes an answer in.
func (w *lastWords) hear(answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		before, rest, found := strings.Cut(answer, "{")
		if !found {
			return
		}
		outcome, next, _ := strings.Cut(rest, "}")
		answer = next
		digits := before[strings.LastIndexAny(before, "[ ")+1:]
		partition, err := strconv.ParseInt(digits, 10, 32)
		if err != nil {
			continue
		}
		if e := codeIn(outcome); e != nil {
			w.said[int32(partition)] = e
		} else {
			delete(w.said, int32(partition))
		}
	}
}

// codeIn returns the error that an outcome names, nil for none.
func codeIn(outcome string) *kerr.Error {
	_, named, _ := strings.Cut(outcome, "(")
	name, _, found := strings.Cut(named, ":")
	if !found {
		return nil
	}
	const most = 200 // There are some 135 codes.
	for code := int16(1); code < most; code++ {
		if e := kerr.TypedErrorForCode(code); e != nil && e.Message == name {
			return e
		}
	}
	return nil
}

// of returns what was last said of a partition, nil if it was no error. A record that came
// to none yet, with a negative number, waits for others, whichever have their reasons.
func (w *lastWords) of(partition int32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, e := range w.said {
		if p == partition || partition < 0 {
			return e
		}
	}
	return nil
}
