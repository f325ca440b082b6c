package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/certs/certstest"
	"github.com/strandline/strandline/internal/cli"
)

// Certificates are given by flags, and what would leave a listener open that was to be
// closed is refused before anything is touched.
func TestStartWithTLS(t *testing.T) {
	s := startWith(t, []string{"STRANDLINE_TLS_KEY=k"}, newFakeBroker(), "--tls-cert", "c", "--tls-ca", "a",
		"--cluster-listen", "127.0.0.1:9093",
		"--cluster-tls-cert", "cc", "--cluster-tls-key", "ck", "--cluster-tls-ca", "ca")
	if d := cmp.Diff(certs.Files{Cert: "c", Key: "k", CA: "a"}, s.options.TLS); d != "" {
		t.Errorf("%s%s", d, &s.stderr)
	}
	if d := cmp.Diff(certs.Files{Cert: "cc", Key: "ck", CA: "ca"}, s.options.ClusterTLS); d != "" {
		t.Error(d)
	}
	if !strings.Contains(s.stdout.String(), "https://") {
		t.Errorf("the banner is\n%s", &s.stdout)
	}
	for want, args := range map[string][]string{
		"--tls-cert and --tls-key belong together": {"--tls-ca", "a"},
		"belong together":                          {"--cluster-listen", "127.0.0.1:9093", "--cluster-tls-cert", "c", "--cluster-tls-key", "k"},
		"there is none":                            {"--cluster-tls-cert", "c", "--cluster-tls-key", "k", "--cluster-tls-ca", "a"},
	} {
		s := startWith(t, nil, newFakeBroker(), args...)
		if s.ran || s.code != 2 || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%v: code %d, %s", args, s.code, &s.stderr)
		}
	}
}

// A client names what can't be read, and doctor looks at the certificates that a
// broker would start with.
func TestCertificatesOfCommands(t *testing.T) {
	ca := certstest.New(t)
	files := ca.Issue([]string{"127.0.0.1"})
	run := func(args ...string) (int, string) {
		t.Helper()
		var out strings.Builder
		code := cli.Run(context.Background(), cli.Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		})
		return code, out.String()
	}
	if code, out := run("topic", "list", "--tls-ca", files.Key); code != 2 || !strings.Contains(out, "holds no certificate") {
		t.Errorf("code %d: %s", code, out)
	}
	config := filepath.Join(t.TempDir(), "strandline.yaml")
	writeFile(t, config, "data-dir: "+t.TempDir()+"\nlisten: 127.0.0.1:0\nhttp-listen: none\ntls-cert: "+files.Cert+"\ntls-key: "+files.Key+"\n")
	if _, out := run("doctor", "--config", config); !strings.Contains(out, "tls-cert") || !strings.Contains(out, "expires on") {
		t.Errorf("a certificate of a day: %s", out)
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if _, out := run("doctor", "--config", config); !strings.Contains(out, "no such file") {
		t.Errorf("without the key: %s", out)
	}
}
