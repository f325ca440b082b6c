package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestExplainLateAnswers: who got no answer in time reaches no broker, unless one has answered
// before: then that one waits for others.
func TestExplainLateAnswers(t *testing.T) {
	for _, c := range []struct {
		answered bool
		code     int
		want     string
	}{
		{false, exitUnreachable, "cannot reach a broker at 127.0.0.1:1"},
		{true, exitFailed, "a broker is there, but gave no answer within 1s"},
	} {
		a := &app{dials: newDialWatch(), answered: c.answered}
		a.flags.brokers, a.flags.timeout = []string{"127.0.0.1:1"}, time.Second
		f := a.explain(fmt.Errorf("remove a voter: %w", context.DeadlineExceeded))
		if int(f.code) != c.code || !strings.Contains(f.message, c.want) {
			t.Errorf("answered %v: exit code %d, %q", c.answered, f.code, f.message)
		}
	}
}
