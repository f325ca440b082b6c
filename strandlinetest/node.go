package strandlinetest

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

// startTimeout is how long a broker may take to serve. One that waits for a majority
// of the others waits for ever.
const startTimeout = 30 * time.Second

// node is one broker of a Cluster through all of its runs.
type node struct {
	id     int
	config strandline.Config
	host   netx.Network
	kafka  *door
	http   *door // nil without WithHTTP.
	disk   *disk
	// wiped says that it has lost its vote with its disk.
	wiped bool

	mu  sync.Mutex
	run *run // nil while it does not run.
}

// run is one run of a node.
type run struct {
	process *process
	server  *strandline.Server
	broker  *broker.Broker
	closers []func() error // When it has ended.
	ended   chan struct{}
	err     error // Set before ended is closed.
}

func (n *node) running() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run
}

// take returns the run, if there is one, which is no longer the node's.
func (n *node) take() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.run
	n.run = nil
	return r
}

// start runs the broker, and returns when it serves.
func (n *node) start() error {
	if n.running() != nil {
		return fmt.Errorf("node %d runs already", n.id)
	}
	files, closeFiles, err := n.disk.open()
	if err != nil {
		return err
	}
	r := &run{process: newProcess(), ended: make(chan struct{}), closers: []func() error{closeFiles}}
	ground := strandline.Ground{
		FS:       r.process.disk(&slowFS{files, n.disk, r.process}, n.disk.fault),
		Network:  r.process.network(n.host),
		Listener: r.process.listener(n.kafka.enter()),
		Opened:   func(b *broker.Broker) { r.broker = b },
	}
	if n.http != nil {
		ground.HTTPListener = r.process.listener(n.http.enter())
	}
	ctx, cancel := context.WithCancel(context.Background())
	tooLong := time.AfterFunc(startTimeout, cancel)
	r.server, err = strandline.StartOn(ctx, n.config, ground)
	if !tooLong.Stop() && err == nil {
		err = fmt.Errorf("it does not serve after %v", startTimeout)
	}
	if err != nil {
		cancel()
		r.process.kill()
		_ = closeFiles()
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	r.closers = append(r.closers, func() error { cancel(); return nil })
	go r.watch() // Ends with the broker.
	n.mu.Lock()
	defer n.mu.Unlock()
	n.run = r
	return nil
}

func (r *run) watch() {
	r.err = r.server.Wait()
	for _, c := range r.closers {
		_ = c()
	}
	close(r.ended)
}

// kill ends the run as SIGKILL does.
func (r *run) kill() {
	r.process.kill()
	r.server.Kill()
	<-r.ended
}

// stop ends the run cleanly.
func (r *run) stop() error {
	r.process.resume()
	_ = r.server.Close()
	<-r.ended
	r.process.kill() // Nothing is left open.
	return r.err
}

// disk is what a node has its data on: in memory, or a directory.
type disk struct {
	dir string

	mu     sync.Mutex
	memory *memfs.FS // nil with dir.
	full   bool
	hangs  chan struct{} // Closed to go on; nil while it does not hang.
	slow   time.Duration
	more   errorfs.Injector // What a test has in mind; nil for nothing.
}

func newDisk(dir string, id int) *disk {
	if dir == "" {
		return &disk{memory: memfs.New()}
	}
	return &disk{dir: filepath.Join(dir, strconv.Itoa(id))}
}

func (d *disk) open() (vfs.FS, func() error, error) {
	if d.dir != "" {
		files, err := osfs.Open(d.dir)
		if err != nil {
			return nil, nil, err
		}
		return files, files.Close, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory, func() error { return nil }, nil
}

// fault is what the disk does in the place of an operation.
func (d *disk) fault(p *process, o errorfs.Op) error {
	d.mu.Lock()
	full, hangs, more := d.full, d.hangs, d.more
	d.mu.Unlock()
	if hangs != nil && (o.Kind == errorfs.Sync || o.Kind == errorfs.SyncDir) {
		select {
		case <-hangs:
		case <-p.killed:
		}
	}
	if more != nil {
		if err := more(o); err != nil {
			return err
		}
	}
	if full && d.dir != "" && takesRoom(o) {
		return syscall.ENOSPC
	}
	return nil
}

// slowFS is a disk whose syncs take as long as a test says. What is written late while
// one takes its time is not in it.
type slowFS struct {
	vfs.FS
	disk    *disk
	process *process
}

// Open implements vfs.FS.
func (s *slowFS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	f, err := s.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

// Sync implements vfs.File.
func (f *slowFile) Sync() error {
	f.fs.disk.mu.Lock()
	slow := f.fs.disk.slow
	f.fs.disk.mu.Unlock()
	if slow == 0 {
		return f.File.Sync()
	}
	// Half of the time is before what counts, and half after.
	f.fs.process.wait(slow / 2)
	if err := f.fs.process.pass(); err != nil {
		return err
	}
	err := f.File.Sync()
	f.fs.process.wait(slow / 2)
	return err
}

// takesRoom reports whether an operation needs free blocks, or may.
func takesRoom(o errorfs.Op) bool {
	switch o.Kind {
	case errorfs.Write, errorfs.Allocate, errorfs.MkdirAll:
		return true
	case errorfs.Open:
		return o.Flag&vfs.Create != 0
	default:
		return false
	}
}

// fill leaves no byte free.
func (d *disk) fill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = true
	if d.memory != nil {
		free, total, _ := d.memory.Usage() // In memory, it never fails.
		d.memory.SetCapacity(int64(total - free))
	}
}

// mend ends whatever the disk suffers from.
func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.slow, d.more = false, 0, nil
	if d.memory != nil {
		d.memory.SetCapacity(-1)
	}
	if d.hangs != nil {
		close(d.hangs)
		d.hangs = nil
	}
}

func (d *disk) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hangs == nil {
		d.hangs = make(chan struct{})
	}
}

func (d *disk) slowDown(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}

func (d *disk) suffer(more errorfs.Injector) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.more = more
}

// losePower leaves what was synced, and of the rest what chance leaves.
func (d *disk) losePower(seed uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memory == nil {
		return false
	}
	const survives = 50 // Percent.
	d.memory = d.memory.CrashClone(seed, survives)
	return true
}

// wipe leaves nothing.
func (d *disk) wipe() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memory == nil {
		return false
	}
	d.memory = memfs.New()
	return true
}
