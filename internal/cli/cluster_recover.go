package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

const clusterRecoverLong = `Make a broker that is left the only voter, when a majority of the voters is lost for good.

While the disks of a majority of the voters are sound, start those voters: nothing is lost
then, and this is not for you. When they are gone for good, nobody can decide anything any
more, and nobody knows all that was decided. This command has one broker go on with what
it knows of topics, configurations and leaders. What the lost voters had decided and this
broker had not heard of is undone: mostly nothing, or what happened in the last moment.
Records that are on brokers that are left stay; partitions that were in sync on lost
brokers alone have no leader until kafka-leader-election.sh --election-type unclean.

Stop all brokers first; any of them that answers is a reason to refuse. Run it on one of
those that are left, with a vote or not: without --yes it says how far its metadata goes, so
that you can take the one that knows most. Then start that broker, then the others that are
left, and new ones with empty directories in the place of those that are lost; at last
strandline cluster add makes voters of them.

Never start the lost voters again on what they had: together they would go on with it,
beside this one, and clients could not tell the two clusters apart.

DIR is a data directory (default ./strandline-data). The exit code is 4 if --yes was not
given.

`

// recoveredQuorum is what cluster recover reports.
type recoveredQuorum struct {
	Broker int32   `json:"broker"`
	Voters []int32 `json:"voters"` // As the broker knows them.
	// Term and LastIndex say how much it knows.
	Term      uint64 `json:"term"`
	LastIndex uint64 `json:"last_index"`
	Topics    int    `json:"topics"`
	// Elsewhere are partitions that no voter that is left need have in full.
	Elsewhere int  `json:"partitions_in_sync_elsewhere_only"`
	Recovered bool `json:"recovered"`
}

type clusterRecover struct {
	*app
	yes bool
}

func newClusterRecover(a *app) *cobra.Command {
	c := &clusterRecover{app: a}
	cmd := &cobra.Command{
		Use:   "recover [DIR]",
		Short: "Go on with one voter when the majority is lost for good",
		Long: clusterRecoverLong + columnsHelp("broker", "voters", "term", "last index", "topics",
			"partitions in sync on other brokers only", "recovered") + "\n" + jsonHelp[recoveredQuorum](),
		Args: wantArgs(0, 1, "at most one data directory"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "go on with what this broker knows")
	return cmd
}

func (c *clusterRecover) run(ctx context.Context, args []string) error {
	path := "./strandline-data"
	if len(args) > 0 {
		path = args[0]
	}
	dir, err := openStopped(path)
	if err != nil {
		return err
	}
	err = c.recoverIn(ctx, path, kafka.BrokerID(dir.Meta().NodeID))
	if closed := dir.Close(dir.WasClean()); err == nil && closed != nil {
		err = failf("close %s: %w", path, closed)
	}
	return err
}

// recoverIn works on a data directory that is locked.
func (c *clusterRecover) recoverIn(ctx context.Context, path string, self kafka.BrokerID) error {
	files, err := osfs.OpenExisting(path)
	if err != nil {
		return failf("%s: %w", path, err)
	}
	defer files.Close() //nolint:errcheck // What counts was synced.
	m := &imageMachine{image: &metadata.Image{}}
	left, err := quorum.Survey(files, metadataDirName, m)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && m.image.ClusterID() == "":
		return failf("%s has no metadata of a cluster to go on with", path).hint("Take another broker that is left.")
	case err != nil:
		return failf("%s: %w", path, err).hint("Take another broker that is left.")
	case slices.Equal(left.Voters, []kafka.BrokerID{self}):
		return failf("broker %d is the only voter: it decides alone", self).hint("Start it. There is nothing to recover.")
	}
	if err := refuseWhileOthersAnswer(ctx, m.image, self); err != nil {
		return err
	}
	report := recoveredQuorum{
		Broker: int32(self), Term: left.Term, LastIndex: left.LastIndex, Topics: m.image.TopicCount(),
		Elsewhere: inSyncElsewhere(m.image, self),
	}
	for _, id := range left.Voters {
		report.Voters = append(report.Voters, int32(id))
	}
	c.out.remark("Broker %d knows the metadata up to entry %d of term %d: %s, and the voters %s.", self, left.LastIndex, left.Term,
		plural(report.Topics, "topic"), numbers(report.Voters))
	c.out.remark("What the other voters decided after that is undone.")
	if report.Elsewhere > 0 {
		c.out.remark("Of %s it was not in sync: they have a leader again when a broker that was is started.",
			plural(report.Elsewhere, "partition"))
	}
	given := c.yes || isTerminal(c.env.Stdin)
	if given {
		if err := c.confirm(c.yes, "Are %s lost for good, and is broker %d to decide alone from now on?",
			numbers(slices.DeleteFunc(slices.Clone(report.Voters), func(id int32) bool { return id == int32(self) })), self); err != nil {
			return err
		}
		err := quorum.GoOnAlone(quorum.Options{FS: files, Dir: metadataDirName, NodeID: self, Machine: &leapingMachine{imageMachine{image: &metadata.Image{}}}})
		if err != nil {
			return failf("%s: %w", path, err)
		}
		report.Recovered = true
		c.out.remark("Broker %d is the only voter. Start it, then the others; make voters with strandline cluster add. "+
			"Never start a lost voter again on its old directory.", self)
	}
	if c.out.form != formTable {
		t := newTable(">broker", "voters", ">term", ">last index", ">topics", ">elsewhere", "recovered")
		t.add(report.Broker, joinIDs(report.Voters), number(int64(report.Term)), number(int64(report.LastIndex)),
			number(int64(report.Topics)), number(int64(report.Elsewhere)), report.Recovered)
		if err := c.out.show(report, t); err != nil {
			return err
		}
	}
	if !given {
		c.out.remark("Nothing was changed. To go on with what broker %d knows, add --yes.", self)
		return silent(exitUnsound)
	}
	return nil
}

// answerPatience is how long a broker may take to accept a connection.
const answerPatience = 2 * time.Second

// refuseWhileOthersAnswer returns an error if another broker runs, as far as it can be
// reached from here.
func refuseWhileOthersAnswer(ctx context.Context, image *metadata.Image, self kafka.BrokerID) error {
	dialer := net.Dialer{Timeout: answerPatience}
	for _, b := range image.Brokers() {
		e, ok := b.Listener(metadata.ClusterListener)
		if b.ID == self || !ok {
			continue
		}
		address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		_ = conn.Close()
		return failf("broker %d answers at %s", b.ID, address).
			hint("If a majority of the voters can run, start them: nothing is lost then. Otherwise stop all brokers first.")
	}
	return ctx.Err()
}

// inSyncElsewhere counts the partitions of which a broker need not have all that was
// acknowledged.
func inSyncElsewhere(image *metadata.Image, self kafka.BrokerID) (n int) {
	for t := range image.AllTopics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; !slices.Contains(p.ISR, self) && !slices.Contains(p.Eligible, self) {
				n++
			}
		}
	}
	return n
}

// leapingMachine is the metadata with all that is counted up far ahead of what lost voters
// may have given out: so nothing that is left somewhere, a replica's log or a producer, is
// taken for what it is not.
type leapingMachine struct{ imageMachine }

const (
	epochLeap    = 1000
	producerLeap = 1_000_000
)

// Snapshot implements quorum.Machine.
func (m *leapingMachine) Snapshot() ([]byte, error) {
	records := m.image.Records()
	for i, r := range records {
		switch r := r.(type) {
		case *metadata.ClusterRecord:
			r.LastBrokerEpoch += epochLeap
		case *metadata.TopicCreated:
			moved := *r
			moved.Partitions = slices.Clone(r.Partitions)
			for i := range moved.Partitions {
				moved.Partitions[i].LeaderEpoch += epochLeap
				moved.Partitions[i].PartitionEpoch += epochLeap
			}
			records[i] = &moved
		case *metadata.ProducerIDs:
			r.Next += producerLeap
		}
	}
	image, _, err := (&metadata.Image{}).Apply(records...)
	if err != nil {
		return nil, fmt.Errorf("raise the epochs of the metadata: %w", err)
	}
	return image.AppendSnapshot(nil), nil
}
