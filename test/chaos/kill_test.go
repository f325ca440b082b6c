package chaos_test

import (
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// TestKill9 kills the broker again and again under load with acks=all.
func TestKill9(t *testing.T) {
	cp := harness.JavaClasspath(t, 5*time.Minute)
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
	b.Stop()
	harness.DumpSegments(t, 5*time.Minute, cp, b.DataDir)
	t.Logf("%d kills, %d acknowledged records checked", n, checked)
}
