package cli

import (
	"errors"
	"io/fs"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

const metadataDirName = "metadata"

// nameTopics gives partitions the names of their topics. The names are in the
// cluster's metadata only; where that cannot be read, ids stay.
func (a *app) nameTopics(dataDir string, all []*logPartition) {
	if len(all) == 0 {
		return
	}
	image, err := readImage(dataDir)
	if err != nil {
		a.out.warn("topics are shown by their ids, because the metadata cannot be read: %v", err)
		return
	}
	for _, p := range all {
		if t := image.TopicByID(p.id); t != nil {
			p.topic = t.Name
		}
	}
}

// readImage rebuilds the metadata of a data directory, which may belong to a
// running broker: nothing is changed there.
func readImage(dataDir string) (*metadata.Image, error) {
	files, err := osfs.OpenExisting(dataDir)
	if err != nil {
		return nil, err
	}
	m := &imageMachine{image: &metadata.Image{}}
	for range inspectTries {
		err = quorum.Inspect(files, metadataDirName, m)
		if !errors.Is(err, fs.ErrNotExist) {
			break // A file that goes while it is read is worth another try.
		}
	}
	return m.image, errors.Join(err, files.Close())
}

// inspectTries is how often the metadata is read before it counts as missing.
const inspectTries = 3

// imageMachine is the metadata as a quorum's machine that decides nothing.
type imageMachine struct{ image *metadata.Image }

// Apply implements quorum.Machine.
func (m *imageMachine) Apply(_ uint64, entry []byte) error {
	records, err := metadata.DecodeRecords(entry)
	if err != nil {
		return err
	}
	m.image, _, err = m.image.Apply(records...)
	return err
}

// Snapshot implements quorum.Machine.
func (m *imageMachine) Snapshot() ([]byte, error) { return m.image.AppendSnapshot(nil), nil }

// Restore implements quorum.Machine.
func (m *imageMachine) Restore(_ uint64, data []byte) error {
	image, err := metadata.DecodeSnapshot(data)
	if err == nil {
		m.image = image
	}
	return err
}
