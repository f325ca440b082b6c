package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

const logRepairLong = `Have logs go on without records that are damaged or missing.

A log that lost something of what was durable is frozen: it takes no records until somebody
has decided. Put its files back from a copy if there is one. If there is none, this command
gives up what is lost, and only that: everything that can be read stays at its offsets, what
the journal still had of the lost records comes back, and no offset is given twice. It does
the same for damage that consumers cannot get past in a log that is not frozen.

Without --yes it says which offsets would be given up, and changes no log. The files that it
replaces are put aside in the partition's directory, under names that end in .cut; the room
for that must be there. The broker must be stopped. The directory is opened as at a start,
which finishes what a crash interrupted.

DIR is a data directory (default ./strandline-data). The exit code is 4 if there is
something to repair and --yes was not given.

`

type logRepair struct {
	*app
	topics     []string
	partitions []int32
	yes        bool
}

// repairedLog is a log as log repair shows it.
type repairedLog struct {
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Frozen    bool         `json:"frozen"`
	Start     kafka.Offset `json:"start_offset"`
	End       kafka.Offset `json:"end_offset"`
	Lost      []lostRange  `json:"lost"`
	Restored  int64        `json:"restored"` // Offsets.
	PutAside  []string     `json:"put_aside"`
	Repaired  bool         `json:"repaired"`
	reason    string       // Why it is frozen.
	repair    *commitlog.Repair
}

// lostRange is a range of offsets that cannot be read.
type lostRange struct {
	First  kafka.Offset `json:"first_offset"`
	Last   kafka.Offset `json:"last_offset"`
	Reason string       `json:"reason"`
}

func newLogRepair(a *app) *cobra.Command {
	r := &logRepair{app: a}
	cmd := &cobra.Command{
		Use:   "repair [DIR]",
		Short: "Have frozen or damaged logs go on without what is lost",
		Long: logRepairLong + resultHelp[[]repairedLog]("topic", "partition", "state (frozen or damaged)",
			"start offset", "end offset", "offsets lost", "offsets restored", "result (repaired or -)"),
		Args: wantArgs(0, 1, "at most one data directory"),
		RunE: func(_ *cobra.Command, args []string) error { return r.run(args) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&r.topics, "topic", "t", nil, "only these `topics`, by name or id")
	partitionsFlag(f, &r.partitions, "only these partition `numbers`")
	f.BoolVarP(&r.yes, "yes", "y", false, "give up what is lost")
	return cmd
}

func (r *logRepair) run(args []string) error {
	path := "./strandline-data"
	if len(args) > 0 {
		path = args[0]
	}
	image, err := readImage(path)
	if errors.Is(err, fs.ErrNotExist) {
		image, err = &metadata.Image{}, nil
	}
	if err != nil {
		r.out.warn("topics are shown by their ids, because the metadata cannot be read: %v", err)
	}
	dir, err := openStopped(path)
	if err != nil {
		return err
	}
	logs, err := r.examine(dir, image)
	if err == nil {
		err = r.repair(logs)
	}
	// Whoever starts next is to know of a crash before this, and of what was lost.
	clean := dir.WasClean() && !slices.ContainsFunc(logs, func(l *repairedLog) bool { return l.Repaired })
	if closed := dir.Close(clean); err == nil && closed != nil {
		err = failf("close %s: %w", path, closed)
	}
	return err
}

// How often, and how long apart, a data directory that is locked is tried again.
const (
	lockTries = 10
	lockPause = 100 * time.Millisecond
)

// openStopped opens the data directory of a broker that does not run.
func openStopped(path string) (*commitlog.Dir, error) {
	files, err := osfs.OpenExisting(path)
	if err != nil {
		return nil, failf("%s: there is no data directory: %w", path, err).hint("Name the broker's --data-dir.")
	}
	meta, err := commitlog.ReadMeta(files)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failf("%s is not a data directory: it has no %s", path, metaFileName).
			hint("Name the broker's --data-dir.")
	}
	if err != nil {
		return nil, failf("%s: %w", path, err)
	}
	dir, err := commitlog.OpenDir(files, commitlog.DirOptions{Fresh: meta})
	for range lockTries { // A broker that was stopped just now may still be ending.
		if !errors.Is(err, vfs.ErrLocked) {
			break
		}
		<-time.After(lockPause)
		dir, err = commitlog.OpenDir(files, commitlog.DirOptions{Fresh: meta})
	}
	if errors.Is(err, vfs.ErrLocked) {
		return nil, failf("a broker runs on %s", path).hint("Stop it first: its files must not change meanwhile.")
	}
	if err != nil {
		return nil, failf("%s cannot be opened: %w", path, err)
	}
	return dir, nil
}

// examine returns the logs with something to repair, in the order of topics.
func (r *logRepair) examine(dir *commitlog.Dir, image *metadata.Image) ([]*repairedLog, error) {
	defer r.out.progress("")
	found := []*repairedLog{}
	ids := dir.Logs()
	for i, id := range ids {
		l := &repairedLog{Topic: id.ID.Hex(), Partition: id.Partition, Lost: []lostRange{}, PutAside: []string{}}
		if t := image.TopicByID(id.ID); t != nil {
			l.Topic = t.Name
		}
		if len(r.topics) > 0 && !slices.Contains(r.topics, l.Topic) && !slices.Contains(r.topics, id.ID.String()) ||
			len(r.partitions) > 0 && !slices.Contains(r.partitions, l.Partition) {
			continue
		}
		r.out.progress(fmt.Sprintf("%d of %d: %s-%d", i+1, len(ids), l.Topic, l.Partition))
		log, _ := dir.Lookup(id)
		repair, err := log.Examine()
		if err != nil {
			return nil, failf("%s-%d cannot be examined: %w", l.Topic, l.Partition, err)
		}
		if repair != nil {
			l.take(repair)
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *repairedLog) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return found, nil
}

func (l *repairedLog) take(repair *commitlog.Repair) {
	l.repair = repair
	l.Start, l.End, l.Restored = repair.Start, repair.End, repair.Restored
	if repair.Frozen != nil {
		l.Frozen, l.reason = true, repair.Frozen.Error()
	}
	for _, x := range repair.Lost {
		l.Lost = append(l.Lost, lostRange{x.From, x.To - 1, x.Found.Error()})
	}
}

// repair says what is lost, and gives it up if the user says so.
func (r *logRepair) repair(logs []*repairedLog) error {
	r.describe(logs)
	given := r.yes || len(logs) > 0 && isTerminal(r.env.Stdin)
	if given && len(logs) > 0 {
		if err := r.confirm(r.yes, "Go on without these records, in %s?", plural(len(logs), "log")); err != nil {
			return err
		}
		for i, l := range logs {
			r.out.progress(fmt.Sprintf("repairing %d of %d: %s-%d", i+1, len(logs), l.Topic, l.Partition))
			err := l.repair.Apply()
			r.out.progress("")
			if err != nil {
				return failf("%s-%d: %w", l.Topic, l.Partition, err).
					hint("It can be done again: what was put aside stays.")
			}
			l.Repaired = true
			l.PutAside = append(l.PutAside, l.repair.PutAside...)
		}
	}
	if err := r.out.show(logs, repairTable(logs)); err != nil {
		return err
	}
	switch {
	case len(logs) == 0:
		r.out.note("Nothing is to be repaired.")
	case !given:
		r.out.remark("No log was changed. To go on without the lost records, add --yes.")
		return silent(exitUnsound)
	}
	for _, l := range logs {
		for _, name := range l.PutAside {
			r.out.note("put aside: %s", name)
		}
	}
	return nil
}

// describe says in sentences what is wrong, for people and in logs.
func (r *logRepair) describe(logs []*repairedLog) {
	for _, l := range logs {
		if l.Frozen {
			r.out.remark("%s-%d is frozen: %s", l.Topic, l.Partition, visible(l.reason))
		}
		for i, x := range l.Lost {
			if i == maxShownFailures {
				r.out.remark("  and %d more in %s-%d; --json shows all", len(l.Lost)-i, l.Topic, l.Partition)
				break
			}
			lost := fmt.Sprintf("offset %d is lost", x.First)
			if x.Last > x.First {
				lost = fmt.Sprintf("offsets %d to %d are lost", x.First, x.Last)
			}
			r.out.remark("%s-%d: %s: %s", l.Topic, l.Partition, lost, visible(x.Reason))
		}
	}
}

func repairTable(logs []*repairedLog) *table {
	t := newTable("topic", ">partition", "state", ">start", ">end", ">lost", ">restored", "result")
	for _, l := range logs {
		state, result := cell{text: "damaged", style: styleYellow}, missing()
		if l.Frozen {
			state = cell{text: "frozen", style: styleRed}
		}
		if l.Repaired {
			result = cell{text: "repaired", style: styleGreen}
		}
		lost := int64(0)
		for _, x := range l.Lost {
			lost += int64(x.Last - x.First + 1)
		}
		t.add(cell{text: l.Topic, style: styleCyan}, l.Partition, state, number(int64(l.Start)), number(int64(l.End)),
			number(lost), number(l.Restored), result)
	}
	return t
}
