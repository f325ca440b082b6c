package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed kafka/pom.xml kafka/log4j2.yaml
var kafkaFiles embed.FS

// clusterID is any valid id: 16 bytes in base64.
const clusterID = "c3RyYW5kbGluZS1iZW5jaA"

// kafkaLauncher starts Apache Kafka, each node a broker and a controller,
// from the jars in home/lib.
type kafkaLauncher struct{ home string }

// fetchKafka makes sure that Kafka's jars lie in home/lib. Maven fetches them
// once from its registry.
func fetchKafka(ctx context.Context, home string) (kafkaLauncher, error) {
	l := kafkaLauncher{home: home}
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return l, fmt.Errorf("%s is not installed: Kafka's side needs Java 17 or newer and Maven; "+
				"run with -kafka=false to measure Strandline alone", tool)
		}
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return l, err
	}
	for _, name := range []string{"pom.xml", "log4j2.yaml"} {
		content, err := kafkaFiles.ReadFile("kafka/" + name)
		if err != nil {
			return l, err
		}
		if err := os.WriteFile(filepath.Join(home, name), content, 0o644); err != nil {
			return l, err
		}
	}
	// Maven leaves alone what is there; the mark saves its start.
	done := filepath.Join(home, "lib.complete")
	if _, err := os.Stat(done); err == nil {
		return l, nil
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
	cmd.Dir = home
	if out, err := cmd.CombinedOutput(); err != nil {
		return l, fmt.Errorf("fetch Kafka with Maven: %w\n%s", err, out)
	}
	return l, os.WriteFile(done, nil, 0o644)
}

// Prepare writes the nodes' properties and formats their log directories.
func (l kafkaLauncher) Prepare(ctx context.Context, nodes []Node) error {
	for i := range nodes {
		if err := l.prepare(ctx, nodes, i); err != nil {
			return err
		}
	}
	return nil
}

// prepare does so for one node. What differs from Kafka's defaults is what so many
// nodes need, no artificial delay before a group's first generation, and deletion of
// files soon after their topic, so that it does not fall into somebody else's run.
func (l kafkaLauncher) prepare(ctx context.Context, nodes []Node, i int) error {
	n := nodes[i]
	replicas, minISR := fmt.Sprint(replicas(len(nodes))), fmt.Sprint(minInSync(len(nodes)))
	properties := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", n.ID),
		"listeners=PLAINTEXT://" + n.Addr + ",CONTROLLER://" + n.Peer,
		"advertised.listeners=PLAINTEXT://" + n.Addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.quorum.voters=" + voters(nodes),
		"log.dirs=" + filepath.Join(n.Dir, "data"),
		"offsets.topic.replication.factor=" + replicas,
		"transaction.state.log.replication.factor=" + replicas,
		"transaction.state.log.min.isr=" + minISR,
		"share.coordinator.state.topic.replication.factor=" + replicas,
		"share.coordinator.state.topic.min.isr=" + minISR,
		"group.initial.rebalance.delay.ms=0",
		"log.segment.delete.delay.ms=500",
	}
	path := filepath.Join(n.Dir, "server.properties")
	if err := os.WriteFile(path, []byte(strings.Join(properties, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "java", l.args("kafka.tools.StorageTool",
		"format", "-t", clusterID, "-c", path)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format Kafka's directory: %w\n%s", err, out)
	}
	return nil
}

// Command returns Kafka's own start line: its collector settings, 1 GiB of heap.
func (l kafkaLauncher) Command(nodes []Node, i int) *exec.Cmd {
	args := append([]string{
		"-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true",
	}, l.args("kafka.Kafka", filepath.Join(nodes[i].Dir, "server.properties"))...)
	return exec.Command("java", args...)
}

func (l kafkaLauncher) args(class string, args ...string) []string {
	return append([]string{
		"-Dlog4j2.configurationFile=" + filepath.Join(l.home, "log4j2.yaml"),
		"-cp", filepath.Join(l.home, "lib") + "/*", class,
	}, args...)
}
