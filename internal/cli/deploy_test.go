package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// deployFile returns a file of deploy/.
func deployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// container is what a Containerfile says of the image.
type container struct {
	env        map[string]string
	ports      []string
	volume     string
	entrypoint []string
	command    []string
	health     []string
	from, user string
}

func readContainerfile(t *testing.T) container {
	t.Helper()
	c := container{env: map[string]string{}}
	for line := range strings.Lines(deployFile(t, "Containerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "FROM":
			c.from = rest
		case "USER":
			c.user = rest
		case "VOLUME":
			c.volume = rest
		case "EXPOSE":
			c.ports = strings.Fields(rest)
		case "ENV":
			for _, pair := range strings.Fields(rest) {
				name, value, _ := strings.Cut(pair, "=")
				c.env[name] = value
			}
		case "ENTRYPOINT":
			c.entrypoint = jsonWords(t, rest)
		case "CMD":
			c.command = jsonWords(t, rest)
		case "HEALTHCHECK":
			_, words, _ := strings.Cut(rest, "CMD ")
			c.health = jsonWords(t, words)
		}
	}
	return c
}

func jsonWords(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return words
}

// startsWith runs start as a deployment would, and checks that it listens on the
// ports that are open there and keeps its data where the volume is.
func startsWith(t *testing.T, env map[string]string, args, ports []string, volume string) cli.BrokerOptions {
	t.Helper()
	if len(args) == 0 || args[0] != "start" {
		t.Fatalf("command %v, want start", args)
	}
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	s := startWith(t, environ, newFakeBroker(), args[1:]...)
	if s.code != 0 || !s.ran {
		t.Fatalf("start %v with %v: exit code %d: %s", args[1:], environ, s.code, &s.stderr)
	}
	if strings.Contains(s.stderr.String(), "warning") {
		t.Errorf("start warns: %s", &s.stderr)
	}
	for _, address := range []string{s.options.Listen, s.options.HTTPListen} {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host != "0.0.0.0" || !slices.Contains(ports, port) {
			t.Errorf("listens on %s, open are the ports %v", address, ports)
		}
	}
	if s.options.DataDir != volume {
		t.Errorf("the data is in %s, the volume at %s", s.options.DataDir, volume)
	}
	_, port, err := net.SplitHostPort(s.options.Advertise)
	if err != nil || !strings.HasSuffix(s.options.Listen, ":"+port) {
		t.Errorf("advertises %q", s.options.Advertise)
	}
	return s.options
}

// checkHealthCommand makes sure that a health check says whether a broker
// serves, and asks where the HTTP listener is.
func checkHealthCommand(t *testing.T, words []string, o cli.BrokerOptions) {
	t.Helper()
	if len(words) != 2 || words[0] != "/strandline" || words[1] != "ready" ||
		!strings.HasSuffix(o.HTTPListen, ":8080") {
		t.Fatalf("health check %v with HTTP at %s", words, o.HTTPListen)
	}
	srv := strandlinetest.Start(t, func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" })
	var out bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Args: append(words[1:], "--http", srv.HTTPAddr()), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	if code != 0 || out.Len() > 0 {
		t.Errorf("%v: exit code %d: %s", words, code, &out)
	}
}

func TestContainerfile(t *testing.T) {
	c := readContainerfile(t)
	if c.from != "scratch" {
		t.Errorf("the image is made from %s", c.from)
	}
	if uid, _, _ := strings.Cut(c.user, ":"); uid == "" || uid == "0" || uid == "root" {
		t.Errorf("it runs as %q", c.user)
	}
	if !slices.Equal(c.entrypoint, []string{"/strandline"}) {
		t.Errorf("entry point %v", c.entrypoint)
	}
	env := maps.Clone(c.env)
	env["STRANDLINE_ADVERTISE"] = "localhost:9092"
	o := startsWith(t, env, c.command, c.ports, c.volume)
	checkHealthCommand(t, c.health, o)
}

// tree is a YAML document.
type tree map[string]any

// at returns what stands at a path, such as spec.template.0.name.
func (d tree) at(t *testing.T, path string) any {
	t.Helper()
	var v any = map[string]any(d)
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[strings.ReplaceAll(step, "|", ".")]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				t.Fatalf("%s: no element %s", path, step)
			}
			v = x[i]
		default:
			t.Fatalf("%s: nothing at %s", path, step)
		}
	}
	return v
}

func (d tree) text(t *testing.T, path string) string {
	t.Helper()
	s, ok := d.at(t, path).(string)
	if !ok {
		t.Fatalf("%s is %v, want a text", path, d.at(t, path))
	}
	return s
}

func (d tree) list(t *testing.T, path string) []any {
	t.Helper()
	l, ok := d.at(t, path).([]any)
	if !ok {
		t.Fatalf("%s is no list", path)
	}
	return l
}

func yamlDocuments(t *testing.T, name string) (all []tree) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(deployFile(t, name)))
	for {
		var d map[string]any
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d != nil {
			all = append(all, d)
		}
	}
}

func words(list []any) (out []string) {
	for _, w := range list {
		out = append(out, w.(string))
	}
	return out
}

func TestCompose(t *testing.T) {
	c := readContainerfile(t)
	d := yamlDocuments(t, "compose.yaml")[0]
	const s = "services.strandline."
	dockerfile := filepath.Join("..", "..", "deploy", d.text(t, s+"build.context"), d.text(t, s+"build.dockerfile"))
	if _, err := os.Stat(dockerfile); err != nil {
		t.Error(err)
	}
	env := maps.Clone(c.env)
	defaulted := regexp.MustCompile(`\$\{\w+:-(.*)\}`)
	for name, value := range d.at(t, s+"environment").(map[string]any) {
		env[name] = defaulted.ReplaceAllString(value.(string), "$1")
	}
	var ports []string
	for _, p := range words(d.list(t, s+"ports")) {
		parts := strings.Split(p, ":")
		if len(parts) != 3 || parts[0] != "127.0.0.1" || !slices.Contains(c.ports, parts[2]) {
			t.Errorf("port %s: want 127.0.0.1:HOST:CONTAINER, of %v", p, c.ports)
		}
		ports = append(ports, parts[len(parts)-1])
	}
	volume, path, _ := strings.Cut(d.text(t, s+"volumes.0"), ":")
	if _, ok := d.at(t, "volumes").(map[string]any)[volume]; !ok || path != c.volume {
		t.Errorf("volume %s at %s, the image has it at %s", volume, path, c.volume)
	}
	o := startsWith(t, env, c.command, ports, path)
	test := words(d.list(t, s+"healthcheck.test"))
	if test[0] != "CMD" {
		t.Errorf("health check %v needs a shell, and there is none", test)
	}
	checkHealthCommand(t, test[1:], o)
}

func TestKubernetes(t *testing.T) {
	docs := map[string]tree{}
	for _, d := range yamlDocuments(t, "kubernetes.yaml") {
		docs[d.text(t, "kind")] = d
	}
	set, service, budget := docs["StatefulSet"], docs["Service"], docs["PodDisruptionBudget"]
	if len(docs) != 3 || set == nil || service == nil || budget == nil {
		t.Fatalf("it holds %v", slices.Sorted(maps.Keys(docs)))
	}
	const label = "app|kubernetes|io/name"
	for place, value := range map[string]any{
		"the service":       service.at(t, "spec.selector."+label),
		"the budget":        budget.at(t, "spec.selector.matchLabels."+label),
		"the set":           set.at(t, "spec.selector.matchLabels."+label),
		"the set's service": set.at(t, "spec.serviceName"),
		"the service name":  service.at(t, "metadata.name"),
	} {
		if want := set.text(t, "spec.template.metadata.labels."+label); value != want {
			t.Errorf("%s says %v, the pods are labelled %s", place, value, want)
		}
	}
	if service.text(t, "spec.clusterIP") != "None" {
		t.Error("the service is not headless")
	}
	const c = "spec.template.spec.containers.0."
	ports, numbers := map[string]string{}, []string{}
	for _, p := range set.list(t, c+"ports") {
		port := p.(map[string]any)
		number := strconv.FormatUint(port["containerPort"].(uint64), 10)
		ports[port["name"].(string)] = number
		numbers = append(numbers, number)
	}
	for _, p := range service.list(t, "spec.ports") {
		port := p.(map[string]any)
		if ports[port["targetPort"].(string)] != strconv.FormatUint(port["port"].(uint64), 10) {
			t.Errorf("the service's port %v, the pod has %v", port, ports)
		}
	}
	env := map[string]string{}
	named := strings.NewReplacer("$(POD_NAME)", "strandline-0", "$(POD_NAMESPACE)", "default")
	for _, e := range set.list(t, c+"env") {
		entry := e.(map[string]any)
		if value, ok := entry["value"].(string); ok {
			env[entry["name"].(string)] = named.Replace(value)
		}
	}
	mount := set.text(t, c+"volumeMounts.0.mountPath")
	if set.text(t, c+"volumeMounts.0.name") != set.text(t, "spec.volumeClaimTemplates.0.metadata.name") {
		t.Error("the mount is of another volume than the claim")
	}
	o := startsWith(t, env, words(set.list(t, c+"args")), numbers, mount)
	if want := "strandline-0." + service.text(t, "metadata.name") + ".default.svc:9092"; o.Advertise != want {
		t.Errorf("advertises %s, want %s", o.Advertise, want)
	}
	srv := strandlinetest.Start(t, func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" })
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if set.text(t, c+probe+".httpGet.port") != "http" {
			t.Errorf("%s asks another port", probe)
		}
		answers(t, srv, set.text(t, c+probe+".httpGet.path"))
	}
	answers(t, srv, set.text(t, "spec.template.metadata.annotations.prometheus|io/path"))
	if port := set.text(t, "spec.template.metadata.annotations.prometheus|io/port"); port != ports["http"] {
		t.Errorf("Prometheus is told port %s", port)
	}
}

func answers(t *testing.T, srv *strandline.Server, path string) {
	t.Helper()
	resp, err := http.Get("http://" + srv.HTTPAddr() + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("GET %s: %s, %v", path, resp.Status, err)
	}
}

func TestPrometheusConfig(t *testing.T) {
	d := yamlDocuments(t, "prometheus.yaml")[0]
	srv := strandlinetest.Start(t, func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" })
	answers(t, srv, d.text(t, "scrape_configs.0.metrics_path"))
	if target := d.text(t, "scrape_configs.0.static_configs.0.targets.0"); target != "127.0.0.1:8080" {
		t.Errorf("the target is %s, not where a broker listens", target)
	}
}

func TestSystemdUnit(t *testing.T) {
	text := deployFile(t, "strandline.service")
	unit := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	if unit["Type"] != "notify" || unit["User"] == "" || unit["User"] == "root" {
		t.Errorf("type %q, user %q", unit["Type"], unit["User"])
	}
	if n, err := strconv.Atoi(unit["LimitNOFILE"]); err != nil || n < 65536 {
		t.Errorf("LimitNOFILE=%s", unit["LimitNOFILE"])
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "strandline.yaml")
	writeFile(t, config, "listen: 0.0.0.0:9092\nadvertise: queue.example.com:9092\nhttp-listen: 0.0.0.0:8080\n")
	command := strings.Fields(unit["ExecStart"])
	i := slices.Index(command, "--config")
	if i < 0 || !strings.HasPrefix(command[i+1], "/etc/"+unit["ConfigurationDirectory"]+"/") {
		t.Fatalf("command %v", command)
	}
	command[i+1] = config
	startsWith(t, nil, command[1:], []string{"9092", "8080"}, "/var/lib/"+unit["StateDirectory"])

	// The file is systemd's language too, where systemd is there to say so.
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not here: its part of the check is left to other machines")
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "strandline.service")
	writeFile(t, path, strings.ReplaceAll(text, "/usr/local/bin/strandline", self))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The service manager is told when the broker serves and when it stops.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	if s := startWith(t, []string{"NOTIFY_SOCKET=" + socket}, newFakeBroker()); s.code != 0 {
		t.Fatalf("exit code %d: %s", s.code, &s.stderr)
	}
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		b := make([]byte, 64)
		n, err := manager.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Errorf("told %q, %v; want %s", b[:n], err, want)
		}
	}
	s := startWith(t, []string{"NOTIFY_SOCKET=" + socket + "-gone"}, newFakeBroker())
	if s.code != 0 || !strings.Contains(s.stderr.String(), "cannot be told READY=1") {
		t.Errorf("without a manager: exit code %d: %s", s.code, &s.stderr)
	}
}
