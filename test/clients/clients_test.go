// Package clients_test runs unmodified Kafka clients and tools against the real
// binary. Each suite installs what it needs from its language's registry.
package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// limit bounds one suite, installation included.
const limit = 6 * time.Minute

// broker starts a broker with the settings that make group tests quick.
func broker(t *testing.T) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Binary(t), t.TempDir(),
		"--set", "group.initial.rebalance.delay.ms=0")
}

// check runs a client's own program, which must say that all went well.
func check(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if out := harness.Run(t, limit, dir, name, args...); !strings.Contains(out, "all ok") {
		t.Fatalf("the program ended without saying that all is ok:\n%s", out)
	}
}

func TestFranzGoAndSarama(t *testing.T) {
	b := broker(t)
	program := filepath.Join(t.TempDir(), "goclients")
	harness.Run(t, limit, "goclients", "go", "build", "-o", program, ".")
	check(t, ".", program, b.Addr)
}

func TestPython(t *testing.T) {
	b := broker(t)
	py := harness.Python(t, limit)
	t.Run("librdkafka", func(t *testing.T) { check(t, "python", py, "confluent_check.py", b.Addr) })
	t.Run("librdkafka transactions", func(t *testing.T) { check(t, "python", py, "confluent_transactions.py", b.Addr) })
	t.Run("kafka-python", func(t *testing.T) { check(t, "python", py, "kafka_python_check.py", b.Addr) })
}

func TestKafkaJS(t *testing.T) {
	harness.Needs(t, "node", "npm")
	b := broker(t)
	dir := t.TempDir()
	for _, f := range []string{"package.json", "check.js"} {
		data, err := os.ReadFile(filepath.Join("node", f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, limit, dir, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
	check(t, dir, "node", "check.js", b.Addr)
}

func TestKcat(t *testing.T) {
	harness.Needs(t, "kcat", "sh")
	b := broker(t)
	script := fmt.Sprintf(`set -e
		seq 1 1000 | sed 's/^/key:/' | kcat -P -b %[1]s -t kcat-topic -K: -X enable.idempotence=true
		kcat -C -b %[1]s -t kcat-topic -e -q -f '%%k %%s\n' | sort -k2n > out
		seq 1 1000 | sed 's/^/key /' | cmp - out
		kcat -L -b %[1]s | grep -q 'topic "kcat-topic"'
		kcat -Q -b %[1]s -t kcat-topic:0:-1
		kcat -b %[1]s -G kcat-group -X auto.offset.reset=earliest -e -q kcat-topic | wc -l | grep -qx 1000
		echo all ok`, b.Addr)
	check(t, t.TempDir(), "sh", "-c", script)
}
