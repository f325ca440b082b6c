package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/certs/certstest"
	"github.com/strandline/strandline/test/harness"
)

// secured starts a broker that wants certificates of its clients, and returns those of
// one.
func secured(t *testing.T) (*harness.Broker, certs.Files) {
	t.Helper()
	ca := certstest.New(t)
	files := ca.Issue([]string{"127.0.0.1"})
	b := harness.Start(t, harness.Binary(t), t.TempDir(), "--set", "group.initial.rebalance.delay.ms=0",
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
	return b, ca.Issue(nil)
}

// librdkafka speaks TLS with certificates on both sides.
func TestKcatOverTLS(t *testing.T) {
	harness.Needs(t, "kcat", "sh")
	b, own := secured(t)
	script := fmt.Sprintf(`set -e
		tls="-b %s -X security.protocol=ssl -X ssl.ca.location=%s -X ssl.certificate.location=%s -X ssl.key.location=%s"
		seq 1 1000 | kcat -P $tls -t secured
		kcat -C $tls -t secured -e -q | sort -n > out
		seq 1 1000 | cmp - out
		kcat $tls -G secured-group -X auto.offset.reset=earliest -e -q secured | wc -l | grep -qx 1000
		echo all ok`, b.Addr, own.CA, own.Cert, own.Key)
	check(t, t.TempDir(), "sh", "-c", script)
}

// Kafka's own clients do, with their stores in PEM form.
func TestJavaOverTLS(t *testing.T) {
	b, own := secured(t)
	cp := harness.JavaClasspath(t, limit)
	var store []byte
	for _, name := range []string{own.Key, own.Cert} {
		pem, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		store = append(store, pem...)
	}
	dir := t.TempDir()
	files := map[string]string{
		"keystore.pem": string(store),
		"client.properties": strings.Join([]string{
			"security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=" + own.CA,
			"ssl.keystore.type=PEM", "ssl.keystore.location=" + filepath.Join(dir, "keystore.pem"), "",
		}, "\n"),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "client.properties")
	run := func(want, class string, args ...string) {
		t.Helper()
		if out := java(t, cp, class, append([]string{"--bootstrap-server", b.Addr}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%s %v: no %q in\n%s", class, args, want, out)
		}
	}
	run("Created topic secured", "org.apache.kafka.tools.TopicCommand", "--command-config", config,
		"--create", "--topic", "secured", "--partitions", "2")
	run("\"name\":\"tool_data\"", "org.apache.kafka.tools.VerifiableProducer", "--command-config", config,
		"--topic", "secured", "--max-messages", "1000", "--acks", "-1", "--throughput", "-1")
	run("\"name\":\"records_consumed\"", "org.apache.kafka.tools.VerifiableConsumer", "--command-config", config,
		"--topic", "secured", "--group-id", "verifiable", "--max-messages", "1000")
}
