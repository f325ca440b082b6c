package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Machine describes where the figures were measured, without its name or paths.
type Machine struct {
	CPU        string
	Cores      int
	MemoryGB   float64
	Kernel     string
	FileSystem string
	Go         string
	Java       string // Empty without Kafka's side.
	Load       string // Load averages before the first run: was it alone?

	SyncP50, SyncP99 time.Duration // One 4 KiB write and fdatasync.
	WriteMBps        float64       // Sequential, synced at the end.
}

// describeMachine reads what the kernel says and measures the disk under dir.
func describeMachine(dir string, java bool) (Machine, error) {
	m := Machine{
		CPU:        procField("/proc/cpuinfo", "model name"),
		Cores:      runtime.NumCPU(),
		Kernel:     firstWords("/proc/sys/kernel/osrelease", 1),
		Load:       firstWords("/proc/loadavg", 3),
		FileSystem: fileSystem(dir),
		Go:         runtime.Version(),
	}
	memory, _, _ := strings.Cut(procField("/proc/meminfo", "MemTotal"), " ")
	if kib, err := strconv.ParseFloat(memory, 64); err == nil {
		m.MemoryGB = kib * 1024 / 1e9
	}
	if java {
		out, _ := exec.Command("java", "-version").CombinedOutput()
		m.Java, _, _ = strings.Cut(string(out), "\n")
	}
	return m, m.measureDisk(filepath.Join(dir, "disk-probe"))
}

// Lines returns the description, one property a line.
func (m Machine) Lines() []string {
	lines := []string{
		fmt.Sprintf("%d cores (%s), %.0f GB of memory, Linux %s", m.Cores, m.CPU, m.MemoryGB, m.Kernel),
		fmt.Sprintf("data on %s: a 4 KiB write with fdatasync takes %v (p50), %v (p99); %.0f MB/s sequentially",
			m.FileSystem, m.SyncP50.Round(time.Microsecond), m.SyncP99.Round(time.Microsecond), m.WriteMBps),
		"load averages before the first run: " + m.Load,
		"load: franz-go, built with " + m.Go + ", on the same cores as the broker",
	}
	if m.Java != "" {
		lines = append(lines, "Apache Kafka 4.4.0 with 1 GiB of heap on "+m.Java)
	}
	return lines
}

// measureDisk times small synced writes over blocks that exist already, as a
// journal makes them, and a large sequential write.
func (m *Machine) measureDisk(path string) error {
	const block, blocks, writes, large = 4096, 1024, 1000, 256 << 20
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	chunk := make([]byte, block*blocks)
	start := time.Now()
	for written := 0; written < large; written += len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	m.WriteMBps = large / 1e6 / time.Since(start).Seconds()
	latencies := NewLatencies(writes)
	for i := range writes {
		start := time.Now()
		if _, err := f.WriteAt(chunk[:block], int64(i%blocks)*block); err != nil {
			return err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		latencies.Add(time.Since(start))
	}
	m.SyncP50, m.SyncP99 = latencies.Quantile(0.5), latencies.Quantile(0.99)
	return nil
}

// fileSystemNames maps the magic numbers of statfs(2).
func fileSystemNames(magic int64) string {
	switch magic {
	case 0xEF53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683E:
		return "btrfs"
	case 0x01021994:
		return "tmpfs"
	case 0x794C7630:
		return "overlayfs"
	case 0x2FC12FC1:
		return "zfs"
	default:
		return fmt.Sprintf("file system %#x", magic)
	}
}

func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "an unknown file system"
	}
	return fileSystemNames(int64(s.Type))
}

// procField returns the value of the first "name : value" line.
func procField(path, name string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(content)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstWords(path string, n int) string {
	content, err := os.ReadFile(path)
	words := strings.Fields(string(content))
	if err != nil || len(words) < n {
		return "unknown"
	}
	return strings.Join(words[:n], " ")
}
