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

// kafkaLauncher starts Apache Kafka, one node that is broker and controller,
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

// Prepare writes the broker's properties and formats its log directory. What
// differs from Kafka's defaults is what one node needs, no artificial delay
// before a group's first generation, and deletion of files soon after their
// topic, so that it does not fall into somebody else's run.
func (l kafkaLauncher) Prepare(ctx context.Context, dir, addr string) error {
	controller, err := freeAddr()
	if err != nil {
		return err
	}
	properties := []string{
		"process.roles=broker,controller",
		"node.id=1",
		"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + controller,
		"advertised.listeners=PLAINTEXT://" + addr,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.quorum.voters=1@" + controller,
		"log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"log.segment.delete.delay.ms=500",
	}
	path := filepath.Join(dir, "server.properties")
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
func (l kafkaLauncher) Command(dir, _ string) *exec.Cmd {
	args := append([]string{
		"-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true",
	}, l.args("kafka.Kafka", filepath.Join(dir, "server.properties"))...)
	return exec.Command("java", args...)
}

func (l kafkaLauncher) args(class string, args ...string) []string {
	return append([]string{
		"-Dlog4j2.configurationFile=" + filepath.Join(l.home, "log4j2.yaml"),
		"-cp", filepath.Join(l.home, "lib") + "/*", class,
	}, args...)
}
