package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline/strandline/test/harness"
)

// java runs a main class.
func java(t *testing.T, classpath, class string, args ...string) string {
	t.Helper()
	return harness.Java(t, limit, classpath, class, args...)
}

func TestJava(t *testing.T) {
	b := broker(t)
	cp := harness.JavaClasspath(t, limit)
	t.Run("clients", func(t *testing.T) {
		if out := java(t, cp, "ClientsCheck", b.Addr); !strings.Contains(out, "all ok") {
			t.Fatal("the checks ended without saying that all is ok")
		}
	})
	t.Run("transactions", func(t *testing.T) {
		if out := java(t, cp, "TransactionsCheck", b.Addr); !strings.Contains(out, "all ok") {
			t.Fatal("the checks ended without saying that all is ok")
		}
		transactionTools(t, cp, b)
	})
	t.Run("example", func(t *testing.T) { javaExample(t, cp, b) })
	t.Run("tools", func(t *testing.T) { kafkaTools(t, cp, b) })
	t.Run("dump", func(t *testing.T) {
		b.Stop()
		harness.DumpSegments(t, limit, cp, b.DataDir)
	})
}

// kafkaTools runs Kafka's own command-line tools as a user would.
func kafkaTools(t *testing.T, cp string, b *harness.Broker) {
	t.Helper()
	at := []string{"--bootstrap-server", b.Addr}
	run := func(want, class string, args ...string) string {
		t.Helper()
		out := java(t, cp, class, append(at[:len(at):len(at)], args...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%s %v: no %q in\n%s", class, args, want, out)
		}
		return out
	}
	topics := "org.apache.kafka.tools.TopicCommand"
	run("Created topic tools", topics, "--create", "--topic", "tools", "--partitions", "3",
		"--config", "retention.ms=100000")
	run("PartitionCount: 3", topics, "--describe", "--topic", "tools")
	run("tools", topics, "--list")
	run("", topics, "--alter", "--topic", "tools", "--partitions", "4")
	run("retention.ms=100000", "org.apache.kafka.tools.ConfigCommand", "--entity-type", "topics", "--entity-name", "tools", "--describe")
	run("Completed updating config", "org.apache.kafka.tools.ConfigCommand", "--entity-type", "topics", "--entity-name", "tools",
		"--alter", "--add-config", "retention.ms=200000")

	run("\"name\":\"tool_data\"", "org.apache.kafka.tools.VerifiableProducer", "--topic", "tools",
		"--max-messages", "2000", "--acks", "-1", "--throughput", "-1")
	run("\"name\":\"records_consumed\"", "org.apache.kafka.tools.VerifiableConsumer", "--topic", "tools",
		"--group-id", "verifiable", "--max-messages", "2000")
	groups := "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	run("verifiable", groups, "--list")
	run("LAG", groups, "--describe", "--group", "verifiable")
	run("NEW-OFFSET", groups, "--reset-offsets", "--to-earliest", "--topic", "tools", "--group", "verifiable", "--execute")
	run("successful", groups, "--delete", "--group", "verifiable")

	run("50000 records sent", "org.apache.kafka.tools.ProducerPerformance", "--topic", "tools",
		"--num-records", "50000", "--record-size", "200", "--throughput", "-1")
	run("data.consumed.in.MB", "org.apache.kafka.tools.ConsumerPerformance", "--topic", "tools", "--num-records", "50000")
	console(t, cp, b.Addr)
	run("tools:0:", "org.apache.kafka.tools.GetOffsetShell", "--topic", "tools")
	run("", topics, "--delete", "--topic", "tools")
}

// console pipes lines through the console producer and reads them back with
// the console consumer.
func console(t *testing.T, cp, addr string) {
	t.Helper()
	lines := filepath.Join(t.TempDir(), "lines")
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	if err := os.WriteFile(lines, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	jvm := "java -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '" + cp + "' "
	harness.Run(t, limit, ".", "sh", "-c", jvm+"org.apache.kafka.tools.ConsoleProducer --bootstrap-server "+addr+
		" --topic console < "+lines)
	out := java(t, cp, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", addr,
		"--topic", "console", "--from-beginning", "--max-messages", "500", "--timeout-ms", "30000")
	for i := range 500 {
		if !strings.Contains(out, fmt.Sprintf("line %d\n", i)) {
			t.Fatalf("the console consumer did not print line %d", i)
		}
	}
}
