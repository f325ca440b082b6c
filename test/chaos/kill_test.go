package chaos_test

import (
	"testing"

	"github.com/strandline/strandline/test/harness"
)

// TestKill9 kills the broker again and again under load with acks=all.
func TestKill9(t *testing.T) {
	b := harness.Start(t, harness.Binary(t), t.TempDir())
	l := startLoad(t, b.Addr, "kill", 6, 2)
	n := rounds(t, 50)
	for i := range n {
		l.awaitMore(200 + 37*i%400)
		b.Kill()
		b.Restart()
	}
	l.awaitMore(500)
	l.end()
	checked := l.verify()
	// Once more from a cold start: what was read must be what is on disk.
	b.Kill()
	b.Restart()
	l.verify()
	t.Logf("%d kills, %d acknowledged records checked", n, checked)
}
