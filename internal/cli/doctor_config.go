package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/internal/config"
)

// The speeds of a disk at which doctor speaks up.
const (
	syncTries = 20
	slowSync  = 20 * time.Millisecond
)

// checkConfig looks at what strandline start would meet with a configuration.
func (d *doctor) checkConfig(ctx context.Context) {
	s, broker, err := d.loadConfig()
	if err != nil {
		f := d.explain(err)
		d.say(statusProblem, "config", f.message, strings.Join(f.hints, " "))
		return
	}
	d.ok("config", "%s is right: %s", d.configFile, plural(len(s.broker.Settings), "setting"))
	listen, advertise := s.addresses(broker)
	for _, l := range []struct{ flag, address string }{
		{"listen", listen},
		{"http-listen", s.broker.HTTPListen},
		{"cluster-listen", s.broker.ClusterListen},
		{"debug-listen", s.broker.DebugListen},
	} {
		if l.address != "" {
			d.checkListen(l.flag, l.address)
		}
	}
	d.checkAdvertise(ctx, listen, advertise)
	d.checkCertificates(s)
	d.checkDataDir(s.broker.DataDir)
	d.checkOwnLimit()
	d.checkClock()
}

// loadConfig reads the configuration as start does, variables included.
func (d *doctor) loadConfig() (*startFlags, *config.Broker, error) {
	s := &startFlags{}
	cmd := &cobra.Command{}
	s.register(cmd.Flags())
	if err := cmd.Flags().Set("config", d.configFile); err != nil {
		return nil, nil, err
	}
	if err := d.bindEnv(cmd); err != nil {
		return nil, nil, err
	}
	if err := s.resolve(d.app, cmd); err != nil {
		return nil, nil, err
	}
	b, err := s.check()
	return s, b, err
}

// checkListen tries whether an address can be listened on.
func (d *doctor) checkListen(flag, address string) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close() // It was only tried.
		d.ok("address", "%s %s is free", flag, address)
		return
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		d.say(statusWarning, "address", fmt.Sprintf("%s %s is in use", flag, address),
			"A broker that runs already? Otherwise choose another port.")
	case errors.Is(err, unix.EADDRNOTAVAIL):
		d.say(statusProblem, "address", fmt.Sprintf("%s %s is no address of this machine", flag, address),
			"Listen on 0.0.0.0 or on an address that ip addr shows.")
	default:
		d.say(statusProblem, "address", fmt.Sprintf("%s %s: %v", flag, address, err), "Write HOST:PORT.")
	}
}

// checkAdvertise looks at the address that clients will be told.
func (d *doctor) checkAdvertise(ctx context.Context, listen, advertise string) {
	told := advertise
	if told == "" {
		told = listen
	}
	host, _, err := net.SplitHostPort(told)
	if err != nil {
		host = told
	}
	ip := net.ParseIP(host)
	switch {
	case isEverywhere(host):
		d.say(statusProblem, "advertised", told+" is no address that a client can go to",
			"Say which one clients use: --advertise HOST[:PORT]")
	case isLoopback(host):
		d.say(statusNote, "advertised",
			fmt.Sprintf("clients are told %s: those on other machines, and in containers, cannot use that",
				told),
			"For those: --listen 0.0.0.0:9092 --advertise NAME")
	case ip == nil && !d.checkName(ctx, "advertised name "+host, host):
	case !strings.Contains(host, ".") && ip == nil:
		d.say(statusNote, "advertised",
			fmt.Sprintf("clients are told %s, a name without a domain: it must mean this machine "+
				"wherever they are", told), "")
	default:
		d.ok("advertised", "clients are told %s", told)
	}
}

// checkDataDir looks at the directory and its disk.
func (d *doctor) checkDataDir(dir string) {
	if dir == "" {
		d.say(statusNote, "disk", "everything is kept in memory only", "")
		return
	}
	existing := dir
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			d.say(statusProblem, "disk", existing+" is no directory", "Choose another --data-dir.")
			return
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		parent := filepath.Dir(existing)
		if parent == existing {
			break
		}
		existing = parent
	}
	var usage unix.Statfs_t
	if err := unix.Statfs(existing, &usage); err != nil {
		d.say(statusProblem, "disk", fmt.Sprintf("%s: %v", existing, err), "")
		return
	}
	d.sayFree(dir, int64(usage.Bavail)*usage.Bsize, int64(usage.Blocks)*usage.Bsize)
	d.checkFileSystem(dir, int64(usage.Type))
	d.timeSync(existing)
}

// checkFileSystem warns of file systems that do not keep what they promise.
func (d *doctor) checkFileSystem(dir string, kind int64) {
	switch kind {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		d.say(statusWarning, "disk", dir+" is on a network file system",
			"Locks and syncs depend on another machine there: use a local disk.")
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		d.say(statusWarning, "disk", dir+" is in memory",
			"It is gone with a restart of the machine: use a disk.")
	case unix.OVERLAYFS_SUPER_MAGIC:
		d.say(statusWarning, "disk", dir+" is in a container's own layer",
			"It is gone with the container: mount a volume.")
	}
}

// timeSync measures what a sync costs, which bounds the latency of every ack.
func (d *doctor) timeSync(dir string) {
	f, err := os.CreateTemp(dir, ".strandline-doctor-*")
	if err != nil {
		d.say(statusProblem, "disk", fmt.Sprintf("cannot write to %s: %v", dir, err),
			"Give the directory to the broker's user, or choose another --data-dir.")
		return
	}
	defer os.Remove(f.Name()) //nolint:errcheck // It is named as ours if it stays.
	defer f.Close()           //nolint:errcheck // Nothing in it counts.
	block := make([]byte, 4096)
	took := make([]time.Duration, 0, syncTries)
	for i := range syncTries {
		_, err := f.WriteAt(block, int64(i)*int64(len(block)))
		began := time.Now()
		if err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			d.say(statusProblem, "disk", fmt.Sprintf("cannot sync a file in %s: %v", dir, err),
				"No ack can be given without.")
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	message := fmt.Sprintf("a sync takes %s (worst of %d: %s)", roundDuration(median), syncTries,
		roundDuration(worst))
	if median > slowSync {
		d.say(statusWarning, "disk", message,
			"Every ack waits for one: use a faster disk, or flush.messages for topics that may lose "+
				"their newest records.")
		return
	}
	d.ok("disk", "%s", message)
}

// checkOwnLimit looks at the limit that a broker started from here would have.
func (d *doctor) checkOwnLimit() {
	limit, ok := openFilesLimit(strconv.Itoa(os.Getpid()))
	if !ok {
		return
	}
	// The runtime has raised our own soft limit to the hard one, as it does a broker's.
	message := fmt.Sprintf("a broker started from here may open %s files", thousands(limit))
	if limit < goodOpenFiles {
		d.say(statusWarning, "files", message,
			"Each partition and each connection needs some. Raise it: LimitNOFILE= in systemd, or ulimit "+
				"-n.")
		return
	}
	d.ok("files", "%s", message)
}
