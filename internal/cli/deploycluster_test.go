package cli_test

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// checkTogether makes sure that brokers of a deployment form one cluster: each is one
// of the same three voters, and listens where the others are told to find it.
func checkTogether(t *testing.T, all []cli.BrokerOptions) {
	t.Helper()
	ids := map[int32]bool{}
	for _, o := range all {
		ids[o.NodeID] = true
		if !slices.Equal(o.Voters, all[0].Voters) || len(o.Voters) != len(all) {
			t.Errorf("broker %d knows the voters %v, broker %d %v", o.NodeID, o.Voters, all[0].NodeID, all[0].Voters)
		}
		i := slices.IndexFunc(o.Voters, func(v cli.Voter) bool { return v.NodeID == o.NodeID })
		if i < 0 {
			t.Errorf("broker %d is no voter of %v", o.NodeID, o.Voters)
			continue
		}
		_, told, err := net.SplitHostPort(o.Voters[i].Address)
		host, port, err2 := net.SplitHostPort(o.ClusterListen)
		if err != nil || err2 != nil || host != "0.0.0.0" || port != told || o.ClusterAdvertise != o.Voters[i].Address {
			t.Errorf("broker %d listens on %s for the others, which are told %s and %s", o.NodeID, o.ClusterListen,
				o.Voters[i].Address, o.ClusterAdvertise)
		}
		if o.Settings["default.replication.factor"] != "3" || o.Settings["min.insync.replicas"] != "2" {
			t.Errorf("broker %d has the settings %v", o.NodeID, o.Settings)
		}
	}
	if len(ids) != 3 {
		t.Errorf("the brokers are %v", slices.Sorted(maps.Keys(ids)))
	}
}

// brokerOf is the prefix of the path to a service of a compose file; what it takes
// from an anchor is merged in.
func brokerOf(t *testing.T, d tree, name string) tree {
	t.Helper()
	s, ok := d.at(t, "services."+name).(map[string]any)
	if !ok {
		t.Fatalf("no service %s", name)
	}
	return tree(s)
}

func TestComposeCluster(t *testing.T) {
	c := readContainerfile(t)
	d := yamlDocuments(t, "compose-cluster.yaml")[0]
	var all []cli.BrokerOptions
	taken, volumes := map[string]bool{}, map[string]bool{}
	for i := range 3 {
		name := fmt.Sprintf("strandline-%d", i+1)
		s := brokerOf(t, d, name)
		env := maps.Clone(c.env)
		for name, value := range s.at(t, "environment").(map[string]any) {
			env[name] = value.(string)
		}
		var ports []string
		for _, p := range words(s.list(t, "ports")) {
			parts := strings.Split(p, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" || taken[parts[1]] {
				t.Errorf("%s: port %s: want 127.0.0.1:HOST:CONTAINER, and HOST its own", name, p)
				continue
			}
			taken[parts[1]] = true
			ports = append(ports, parts[2])
		}
		volume, path, _ := strings.Cut(s.text(t, "volumes.0"), ":")
		if _, ok := d.at(t, "volumes").(map[string]any)[volume]; !ok || path != c.volume || volumes[volume] {
			t.Errorf("%s: volume %s at %s, the image has it at %s", name, volume, path, c.volume)
		}
		volumes[volume] = true
		o := startsWith(t, env, c.command, ports, path)
		if host, _, _ := net.SplitHostPort(o.Voters[i].Address); host != name || o.NodeID != int32(i+1) {
			t.Errorf("%s is broker %d, which the others look for at %s", name, o.NodeID, host)
		}
		if !taken[o.Advertise[strings.LastIndexByte(o.Advertise, ':')+1:]] {
			t.Errorf("%s advertises %s, which is not open", name, o.Advertise)
		}
		test := words(s.list(t, "healthcheck.test"))
		checkHealthCommand(t, test[1:], o)
		all = append(all, o)
	}
	checkTogether(t, all)
}

func TestKubernetesCluster(t *testing.T) {
	docs := map[string]tree{}
	for _, d := range yamlDocuments(t, "kubernetes-cluster.yaml") {
		docs[d.text(t, "kind")+" "+d.text(t, "metadata.name")] = d
	}
	set, service, web := docs["StatefulSet strandline"], docs["Service strandline"], docs["Service strandline-http"]
	budget := docs["PodDisruptionBudget strandline"]
	if len(docs) != 4 || set == nil || service == nil || web == nil || budget == nil {
		t.Fatalf("it holds %v", slices.Sorted(maps.Keys(docs)))
	}
	const label = "app|kubernetes|io/name"
	for place, value := range map[string]any{
		"the service":       service.at(t, "spec.selector."+label),
		"the HTTP service":  web.at(t, "spec.selector."+label),
		"the budget":        budget.at(t, "spec.selector.matchLabels."+label),
		"the set":           set.at(t, "spec.selector.matchLabels."+label),
		"the set's service": set.at(t, "spec.serviceName"),
	} {
		if want := set.text(t, "spec.template.metadata.labels."+label); value != want {
			t.Errorf("%s says %v, the pods are labelled %s", place, value, want)
		}
	}
	// Voters wait for one another at the first start, and for names of pods that are
	// not ready.
	if p := set.text(t, "spec.podManagementPolicy"); p != "Parallel" {
		t.Errorf("the pods start by the policy %s: the first would wait for the others for good", p)
	}
	if service.text(t, "spec.clusterIP") != "None" || service.at(t, "spec.publishNotReadyAddresses") != true {
		t.Error("the service does not name pods that are not ready")
	}
	if budget.at(t, "spec.maxUnavailable") != uint64(1) || set.at(t, "spec.replicas") != uint64(3) ||
		set.at(t, "spec.ordinals.start") != uint64(1) {
		t.Errorf("budget %v, replicas %v from %v", budget.at(t, "spec.maxUnavailable"), set.at(t, "spec.replicas"),
			set.at(t, "spec.ordinals.start"))
	}
	const c = "spec.template.spec.containers.0."
	ports, numbers := map[string]string{}, []string{}
	for _, p := range set.list(t, c+"ports") {
		port := p.(map[string]any)
		number := strconv.FormatUint(port["containerPort"].(uint64), 10)
		ports[port["name"].(string)] = number
		numbers = append(numbers, number)
	}
	for _, p := range append(service.list(t, "spec.ports"), web.list(t, "spec.ports")...) {
		port := p.(map[string]any)
		if ports[port["targetPort"].(string)] != strconv.FormatUint(port["port"].(uint64), 10) {
			t.Errorf("the service's port %v, the pod has %v", port, ports)
		}
	}
	var all []cli.BrokerOptions
	for i := 1; i <= 3; i++ {
		pod := fmt.Sprintf("strandline-%d", i)
		o := startsWith(t, podEnv(t, set, pod), words(set.list(t, c+"args")), numbers, set.text(t, c+"volumeMounts.0.mountPath"))
		host := pod + "." + service.text(t, "metadata.name") + ".default.svc"
		if o.NodeID != int32(i) || o.Advertise != host+":9092" || o.ClusterAdvertise != host+":9093" {
			t.Errorf("%s is broker %d, at %s and %s", pod, o.NodeID, o.Advertise, o.ClusterAdvertise)
		}
		all = append(all, o)
	}
	checkTogether(t, all)
	srv := strandlinetest.Start(t, func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" })
	for _, probe := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if set.text(t, c+probe+".httpGet.port") != "http" {
			t.Errorf("%s asks another port", probe)
		}
		answers(t, srv, set.text(t, c+probe+".httpGet.path"))
	}
}

// podEnv is the environment of a pod of the set, in namespace default.
func podEnv(t *testing.T, set tree, pod string) map[string]string {
	t.Helper()
	ordinal := pod[strings.LastIndexByte(pod, '-')+1:]
	fields := map[string]string{
		"metadata.name": pod, "metadata.namespace": "default", "metadata.labels['apps.kubernetes.io/pod-index']": ordinal,
	}
	env, out := map[string]string{}, map[string]string{}
	reference := regexp.MustCompile(`\$\((\w+)\)`)
	for _, e := range set.list(t, "spec.template.spec.containers.0.env") {
		entry := tree(e.(map[string]any))
		name := entry.text(t, "name")
		if value, ok := entry["value"].(string); ok {
			// What it refers to stands before it, as Kubernetes wants it.
			env[name] = reference.ReplaceAllStringFunc(value, func(r string) string {
				known, ok := env[r[2:len(r)-1]]
				if !ok {
					t.Errorf("%s refers to %s, which does not stand before it", name, r)
				}
				return known
			})
		} else {
			field := entry.text(t, "valueFrom.fieldRef.fieldPath")
			value, ok := fields[field]
			if !ok {
				t.Errorf("%s: no field %s", name, field)
			}
			env[name] = value
		}
		if strings.HasPrefix(name, "STRANDLINE_") {
			out[name] = env[name]
		}
	}
	return out
}
