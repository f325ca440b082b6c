package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// JavaClasspath compiles the Java checks of test/clients, collects Kafka's jars
// with Maven, and returns the class path of both.
func JavaClasspath(t testing.TB, limit time.Duration) string {
	t.Helper()
	Needs(t, "java", "mvn")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(Root(t), "test", "clients", "java"))); err != nil {
		t.Fatal(err)
	}
	Run(t, limit, dir, "mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib")
	return filepath.Join(dir, "target", "classes") + ":" + filepath.Join(dir, "lib") + "/*"
}

// Java runs a main class and returns what it printed.
func Java(t testing.TB, limit time.Duration, classpath, class string, args ...string) string {
	t.Helper()
	return Run(t, limit, ".", "java", javaArgs(classpath, class, args...)...)
}

// TryJava is Java for a run that may fail, and that runs beside the test.
func TryJava(limit time.Duration, classpath, class string, args ...string) (string, error) {
	return TryRun(limit, ".", "java", javaArgs(classpath, class, args...)...)
}

func javaArgs(classpath, class string, args ...string) []string {
	return append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath, class}, args...)
}

// DumpSegments has Kafka's dump tool read every segment and index below a data
// directory, which no broker uses meanwhile.
func DumpSegments(t testing.TB, limit time.Duration, classpath, dataDir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dataDir, "topics", "*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no segments below %s: %v", dataDir, err)
	}
	indexes, err := filepath.Glob(filepath.Join(dataDir, "topics", "*", "*index"))
	if err != nil {
		t.Fatal(err)
	}
	// Not with Run: it prints a line for every batch.
	out, err := TryRun(limit, ".", "java", javaArgs(classpath, "org.apache.kafka.tools.DumpLogSegments",
		"--files", strings.Join(append(logs, indexes...), ","), "--index-sanity-check")...)
	if err != nil {
		t.Fatalf("Kafka's dump tool: %v\n%s", err, out[max(0, len(out)-4000):])
	}
	for _, bad := range []string{"mismatch", "Mismatch", "not valid", "isvalid: false", "Found "} {
		if strings.Contains(out, bad) {
			t.Errorf("Kafka's dump tool says %q", bad)
		}
	}
	if n := strings.Count(out, "Dumping "); n != len(logs)+len(indexes) {
		t.Errorf("Kafka's dump tool read %d of %d files", n, len(logs)+len(indexes))
	}
}
