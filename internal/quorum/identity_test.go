package quorum_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// flip changes one bit of a file.
func flip(t *testing.T, disk vfs.FS, name string, position int64) {
	t.Helper()
	file, err := disk.Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	_, err = file.ReadAt(b[:], position)
	b[0] ^= 4
	_, writeErr := file.WriteAt(b[:], position)
	if err := errors.Join(err, writeErr, file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// newest returns the last file of a directory with a prefix.
func newest(t *testing.T, disk vfs.FS, dir, prefix string) string {
	t.Helper()
	entries, err := disk.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && !strings.HasSuffix(e.Name(), ".damaged") {
			names = append(names, dir+"/"+e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatalf("%s has no %s", dir, prefix)
	}
	return slices.Max(names)
}

// flipNewestRecord damages the last frame of a log.
func flipNewestRecord(t *testing.T, disk vfs.FS, dir string) {
	t.Helper()
	name := newest(t, disk, dir, "segment-")
	used := len(strings.TrimRight(string(readAll(t, disk, name)), "\x00"))
	flip(t, disk, name, int64(used-frameTail))
}

// Whichever byte changes after a kill: opening says in which file, or finds all that
// was acknowledged. So does opening it again.
func TestFlipAfterAKill(t *testing.T) {
	const dir, count = "data/quorum", 14
	disk := memfs.New()
	n := start(t, smallOptions(disk, &list{}))
	for i := range count {
		mustAdd(t, n, item(i))
	}
	killed := disk.CrashClone(1, 100)
	n.stop(t)
	refused, found := 0, 0
	for _, base := range fileNames(t, killed) {
		name := dir + "/" + base
		used := len(strings.TrimRight(string(readAll(t, killed, name)), "\x00"))
		for position := 0; position < used; position++ {
			if position > 200 && position < used-300 {
				position += 12
			}
			clone := killed.CrashClone(1, 100)
			flip(t, clone, name, int64(position))
			for range 2 {
				m := &list{}
				q, err := quorum.Open(smallOptions(clone, m))
				var corrupt *quorum.CorruptionError
				if errors.As(err, &corrupt) && strings.HasSuffix(corrupt.Path, base) {
					refused++
					continue
				}
				if err != nil {
					t.Fatalf("%s, byte %d of %d: %v", base, position, used, err)
				}
				n := run(t, q)
				<-n.Ready()
				if got := len(m.entries()); got != count {
					t.Fatalf("%s, byte %d of %d: %d entries, %d were acknowledged", base, position, used, got, count)
				}
				n.stop(t)
				found++
			}
		}
	}
	if refused < 1000 || found > refused/10 {
		t.Errorf("refused %d times, found whole %d times", refused, found)
	}
}

// identified has the nodes of a cluster come with the id that Identify gives.
func identified(t *testing.T) func(*quorum.Options) {
	joined := map[kafka.BrokerID]bool{}
	return func(o *quorum.Options) {
		o.Directory = [16]byte{byte(o.NodeID) + 1}
		o.Joined = joined[o.NodeID]
		id, err := quorum.Identify(*o)
		if err != nil {
			t.Fatal(err)
		}
		joined[o.NodeID], o.Directory = true, id
	}
}

// halt stops a node in order.
func (c *cluster) halt(id kafka.BrokerID) {
	c.net.mu.Lock()
	n := c.net.nodes[id]
	delete(c.net.nodes, id)
	c.net.mu.Unlock()
	n.stop(c.t)
}

// takes reports whether an entry is committed within a while.
func (c *cluster) takes(entry string) bool {
	_, n := c.leader()
	ctx, cancel := context.WithTimeout(c.t.Context(), 300*time.Millisecond)
	defer cancel()
	return n.add(ctx, entry) == nil
}

// A voter whose log is damaged, or gone, counts for nothing: neither its vote nor what
// it held. Once it was removed it joins again, is sent everything, and can be made a
// voter.
func TestVoterWithADamagedLog(t *testing.T) {
	for what, damage := range map[string]func(t *testing.T, disk *memfs.FS){
		"newest record": func(t *testing.T, disk *memfs.FS) { flipNewestRecord(t, disk, "quorum") },
		"snapshot": func(t *testing.T, disk *memfs.FS) {
			flip(t, disk, newest(t, disk, "quorum", "snapshot-"), 30)
		},
		"gone": func(t *testing.T, disk *memfs.FS) {
			for _, prefix := range []string{"segment-", "snapshot-", "stopped"} {
				if err := disk.Remove(newest(t, disk, "quorum", prefix)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startCluster(t, identified(t))
				id, n := c.leader()
				<-n.Ready()
				mustAdd(t, n, "a", "b")
				c.agree()
				victim, third := (id+1)%3, (id+2)%3
				known := false
				for range 1000 {
					m, _ := c.net.nodes[third].Member(victim)
					if known = m.Directory != [16]byte{}; known {
						break
					}
					advance(10 * time.Millisecond)
				}
				if !known {
					t.Fatal("the directory of a voter is not known after 10 s")
				}
				c.halt(victim)
				damage(t, c.disks[victim])
				c.start(victim)
				if s := c.net.nodes[victim].Status(); s.LastIndex != 0 {
					t.Errorf("it still holds entries up to %d", s.LastIndex)
				}
				if !c.takes("two are enough") {
					t.Error("two of three voters take nothing")
				}
				c.setCut(third, true)
				if c.takes("with its help") {
					t.Error("it was counted")
				}
				c.setCut(third, false)
				_, n = c.leader()
				if err := n.RemoveVoter(t.Context(), victim, [16]byte{}); err != nil {
					t.Fatal(err)
				}
				c.agree()
				_, n = c.leader()
				again := quorum.Member{ID: victim, Directory: c.net.directories[victim], Address: address(victim)}
				if err := n.AddVoter(t.Context(), again); err != nil {
					t.Fatal(err)
				}
				c.setCut(third, true)
				c.add("with its help")
				c.setCut(third, false)
				c.agree()
				c.stop()
			})
		})
	}
}

// A log that nobody else holds is not given up, and neither is a sound one.
func TestLogThatIsKept(t *testing.T) {
	disk := memfs.New()
	opt := options(disk, &list{})
	opt.Directory = [16]byte{7}
	n := start(t, opt)
	mustAdd(t, n, "a")
	n.stop(t)
	opt.Joined = true
	identify := func() {
		t.Helper()
		before := fileNames(t, disk)
		if id, err := quorum.Identify(opt); err != nil || id != opt.Directory {
			t.Errorf("known by %v, %v", id, err)
		}
		if after := fileNames(t, disk); !slices.Equal(before, after) {
			t.Errorf("files %v became %v", before, after)
		}
	}
	identify()
	flipNewestRecord(t, disk, "data/quorum")
	identify()
	var corrupt *quorum.CorruptionError
	if _, err := quorum.Open(opt); !errors.As(err, &corrupt) {
		t.Errorf("opened: %v", err)
	}
	for _, prefix := range []string{"segment-", "snapshot-", "stopped"} {
		if err := disk.Remove(newest(t, disk, "data/quorum", prefix)); err != nil {
			t.Fatal(err)
		}
	}
	identify()
	if _, err := quorum.Open(opt); !errors.As(err, &corrupt) {
		t.Errorf("begun anew where nothing is left: %v", err)
	}
	if left := fileNames(t, disk); len(left) > 0 {
		t.Errorf("made %v", left)
	}
}

// Power is lost while a log is given up: the next start goes on, and never with the
// old id.
func TestPowerLossWhileGivingUp(t *testing.T) {
	disk := memfs.New()
	opt := followerOptions(disk, &list{})
	opt.Voters, opt.Directory = []kafka.BrokerID{0, 1, 2}, [16]byte{7}
	n := start(t, opt)
	entries := []*raftpb.Entry{
		{Index: new(uint64(2)), Term: new(uint64(2)), Type: new(raftpb.EntryNormal)},
		{Index: new(uint64(3)), Term: new(uint64(2)), Type: new(raftpb.EntryNormal), Data: []byte("x")},
	}
	if err := n.Receive(t.Context(), quorum.Member{}, &raftpb.Message{
		Type: new(raftpb.MsgApp), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(2)),
		Index: new(uint64(1)), LogTerm: new(uint64(1)), Commit: new(uint64(3)), Entries: entries,
	}); err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	n.stop(t)
	flipNewestRecord(t, disk, "data/quorum")
	opt.Joined = true
	crashes := crashEverywhere(disk.CrashClone(1, 0), &progress{}, func(fs vfs.FS) {
		o := opt
		o.FS = fs
		if id, err := quorum.Identify(o); err != nil || id == opt.Directory {
			t.Fatalf("known by %v, %v", id, err)
		}
	})
	if len(crashes) < 10 {
		t.Errorf("only %d crashes", len(crashes))
	}
	for _, c := range crashes {
		o := opt
		o.FS, o.Machine = c.disk, &list{}
		id, err := quorum.Identify(o)
		if err != nil || id == opt.Directory {
			t.Errorf("%s: known by %v, %v", c.what, id, err)
			continue
		}
		o.Directory = id
		q := mustOpen(t, o)
		if s := q.Status(); s.LastIndex != 0 {
			t.Errorf("%s: it holds entries up to %d", c.what, s.LastIndex)
		}
		if again, err := quorum.Identify(o); err != nil || again != id {
			t.Errorf("%s: then known by %v, %v", c.what, again, err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}
