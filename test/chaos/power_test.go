package chaos_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/test/harness"
)

// TestPowerLoss takes the power from the data directory's file system: a
// loop-mounted ext4 is shut down without flushing anything, its own journal
// included, so that only what was synced is there at the next mount. The broker is
// frozen first: the kernel can return success for a sync that the shutdown overtook,
// and a machine without power acknowledges nothing.
func TestPowerLoss(t *testing.T) {
	needLoopDisks(t)
	disk := newLoopDisk(t)
	b := harness.Start(t, harness.Binary(t), filepath.Join(disk.dir, "data"))
	l := startLoad(t, b.Addr, "power", 6, 2)
	n := rounds(t, 20)
	for i := range n {
		l.awaitMore(300 + 53*i%500)
		b.Freeze()
		disk.powerOff()
		b.Kill()
		disk.unmount()
		disk.powerOn()
		b.Restart()
	}
	l.awaitMore(500)
	l.end()
	checked := l.verify()
	b.Stop()
	t.Logf("%d power losses, %d acknowledged records checked", n, checked)
}

// needLoopDisks ends a test that cannot have them.
func needLoopDisks(t *testing.T) {
	t.Helper()
	harness.Needs(t, "mkfs.ext4", "mount", "umount", "losetup")
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a file system needs root, and in CI nothing is skipped")
		}
		t.Skip("mounting a file system needs root")
	}
}

// loopDisk is an ext4 file system in a file.
type loopDisk struct {
	t     *testing.T
	image string
	dir   string
}

func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	base := t.TempDir()
	d := &loopDisk{t: t, image: filepath.Join(base, "disk.img"), dir: filepath.Join(base, "mnt")}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, time.Minute, ".", "truncate", "-s", "1G", d.image)
	harness.Run(t, time.Minute, ".", "mkfs.ext4", "-q", d.image)
	d.powerOn()
	t.Cleanup(func() { _, _ = harness.TryRun(time.Minute, ".", "umount", "-l", d.dir) })
	return d
}

func (d *loopDisk) powerOn() {
	d.t.Helper()
	harness.Run(d.t, time.Minute, ".", "mount", "-o", "loop", d.image, d.dir)
}

// powerOff shuts the file system down (FS_IOC_SHUTDOWN with NOLOGFLUSH); a
// running broker meets an I/O error at every further write.
func (d *loopDisk) powerOff() {
	d.t.Helper()
	const (
		fsIocShutdown = 0x8004587D
		noLogFlush    = 2
	)
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	flag := uint32(noLogFlush)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocShutdown, uintptr(unsafe.Pointer(&flag)))
	_ = f.Close()
	if errno != 0 {
		d.t.Fatalf("shut the file system down: %v", errno)
	}
}

// unmount takes the dead mount away; the broker must have ended. Processes in network
// namespaces have the mounts of when they started, and hold on to the dead one: the image
// is copied, as its next mount would be the dead one again.
func (d *loopDisk) unmount() {
	d.t.Helper()
	harness.Run(d.t, time.Minute, ".", "umount", d.dir)
	harness.Run(d.t, time.Minute, ".", "cp", "--sparse=always", d.image, d.image+".copy")
	if err := os.Rename(d.image+".copy", d.image); err != nil {
		d.t.Fatal(err)
	}
}
