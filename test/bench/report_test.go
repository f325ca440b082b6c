package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exampleResults has every kind of row: all sides, some, none; goals of every
// verdict.
func exampleResults() *Results {
	r := &Results{}
	r.Declare("produce", []Figure{Throughput, CPUPerRecord}, []Goal{
		atLeast(Throughput, OursSynced, 1.3).times(KafkaSynced),
		atLeast(Throughput, OursRelaxed, 1.2).times(KafkaUnsynced),
		atMost(CPUPerRecord, OursSynced, 0.25),
	})
	r.Declare("round robin", []Figure{RecordRate}, []Goal{atLeast(RecordRate, OursSynced, 100_000)})
	r.Declare("restart", []Figure{ServeTime}, []Goal{atMost(ServeTime, OursSynced, 1)})
	for i, side := range allSides() {
		for run := range 3 {
			r.Add("produce", side, Measurement{
				Throughput:   200 + 50*float64(i) + float64(run),
				CPUPerRecord: 0.25 + float64(i)/10,
			})
		}
	}
	r.Add("round robin", OursSynced, Measurement{RecordRate: 123_456})
	r.Add("round robin", KafkaUnsynced, Measurement{RecordRate: 94_000})
	return r
}

func exampleMachine() Machine {
	return Machine{
		CPU: "Example CPU", Cores: 2, MemoryGB: 16, Kernel: "6.1", FileSystem: "ext4", Go: "go1.26",
		Java: "openjdk 21", Load: "0.10 0.20 0.30",
		SyncP50: 203456 * time.Nanosecond, SyncP99: 2 * time.Millisecond, WriteMBps: 247,
	}
}

// golden compares with a file under testdata; `go test -rewrite` writes it anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

func TestWriteText(t *testing.T) {
	var out strings.Builder
	if err := exampleResults().WriteText(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", out.String())
}

// TestClusterPage: the page of several nodes says so, and has no columns of sides that
// were not measured.
func TestClusterPage(t *testing.T) {
	r := &Results{}
	r.Declare("produce", []Figure{Throughput}, nil)
	r.Add("produce", OursSynced, Measurement{Throughput: 200})
	r.Add("produce", KafkaUnsynced, Measurement{Throughput: 100})
	var out strings.Builder
	if err := r.WriteMarkdown(&out, exampleMachine(), 3, 2); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 nodes each", "3 replicas", "`min.insync.replicas=2`", "`make bench-cluster`",
		"| work | figure | ours synced | Kafka unsynced | synced/Kafka unsynced | goal |\n",
		"| produce | MB/s | 200 | 100 | 2.00x |  |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not say %q:\n%s", want, out.String())
		}
	}
}

func TestWriteMarkdown(t *testing.T) {
	var out strings.Builder
	if err := exampleResults().WriteMarkdown(&out, exampleMachine(), 1, 3); err != nil {
		t.Fatal(err)
	}
	golden(t, "page.md", out.String())
}

func TestMissed(t *testing.T) {
	// The relaxed side has 301 MB/s against 1.2 times 351.
	if got := exampleResults().Missed(); got != 2 {
		t.Errorf("%d goals missed, want 2", got)
	}
}

func TestFormatValue(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.00", 0.0412: "0.041", 3.14159: "3.14", 42.42: "42.4", 100: "100",
		1234.5: "1,234", 1e6: "1,000,000", -1234567: "-1,234,567",
	} {
		if got := formatValue(value); got != want {
			t.Errorf("formatValue(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestGoalString(t *testing.T) {
	for want, goal := range map[string]Goal{
		"ours synced >= 1.3x Kafka synced": atLeast(Throughput, OursSynced, 1.3).times(KafkaSynced),
		"ours synced <= 0.25":              atMost(CPUPerRecord, OursSynced, 0.25),
		"ours synced >= 100,000":           atLeast(RecordRate, OursSynced, 100_000),
	} {
		if got := goal.String(); got != want {
			t.Errorf("goal is shown as %q, want %q", got, want)
		}
	}
}
