package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// formatVersion is the version of everything in a data directory. It rises when
// an older broker would misread what a newer one wrote.
const formatVersion = 1

// Meta says whose data a directory holds. docs/format/meta.md describes the file.
type Meta struct {
	ClusterID   string // "" before it is known which.
	NodeID      kafka.BrokerID
	DirectoryID string
}

func (m Meta) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version=%d\n", formatVersion)
	fmt.Fprintf(&b, "cluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", m.ClusterID, m.NodeID, m.DirectoryID)
	return b.Bytes()
}

// decodeMeta is the inverse. Unknown keys are ignored.
func decodeMeta(data []byte) (Meta, error) {
	m := Meta{NodeID: kafka.NoBroker}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return m, &CorruptionError{Path: metaName, Reason: fmt.Sprintf("line %q has no =", line)}
		}
		values[key] = value
	}
	version, err := strconv.Atoi(values["version"])
	if err != nil || version < 1 {
		return m, &CorruptionError{Path: metaName, Reason: "no version"}
	}
	if version > formatVersion {
		return m, &NewerFormatError{Path: metaName, Version: version, Known: formatVersion}
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || node < 0 {
		return m, &CorruptionError{Path: metaName, Reason: "no node.id"}
	}
	m = Meta{values["cluster.id"], kafka.BrokerID(node), values["directory.id"]}
	if _, ok := values["cluster.id"]; !ok || m.DirectoryID == "" {
		return m, &CorruptionError{Path: metaName, Reason: "no cluster.id or no directory.id"}
	}
	return m, nil
}

// SetClusterID notes durably which cluster the data belongs to. What is known
// already stays.
func (d *Dir) SetClusterID(id string) error {
	m := d.Meta()
	if m.ClusterID != "" {
		return nil
	}
	m.ClusterID = id
	if err := replaceFile(d.fs, metaName, m.encode(), true); err != nil {
		return fmt.Errorf("note the cluster in %s: %w", metaName, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.meta = m
	return nil
}

// ReadMeta returns whose data a directory holds, without opening it.
func ReadMeta(fsys vfs.FS) (Meta, error) {
	data, err := readFile(fsys, metaName)
	if err != nil {
		return Meta{}, err
	}
	return decodeMeta(data)
}

// loadMeta reads the directory's meta file. If there is none it returns fresh, to
// be written, unless the directory holds data: whose that is nobody knows then.
func loadMeta(fsys vfs.FS, fresh Meta) (m Meta, isFresh bool, err error) {
	data, err := readFile(fsys, metaName)
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, true, refuseOrphans(fsys)
	}
	if err != nil {
		return Meta{}, false, err
	}
	m, err = decodeMeta(data)
	if err != nil {
		return m, false, err
	}
	if m.NodeID != fresh.NodeID {
		return m, false, fmt.Errorf("data directory belongs to node.id %d (%s) and this broker is %d: "+
			"start it with its own directory, or with --node-id %d", m.NodeID, metaName, fresh.NodeID, m.NodeID)
	}
	return m, false, nil
}

// refuseOrphans refuses a directory without a meta file that holds data: the
// meta file is written before all else.
func refuseOrphans(fsys vfs.FS) error {
	for _, name := range []string{topicsDir, journalDir, checkpointName(0), checkpointName(1), quarantineDir} {
		_, err := fsys.Stat(name)
		if err == nil {
			return fmt.Errorf("%s is missing, but the directory holds data (%s): put the file back, "+
				"or start with an empty directory; nothing was changed", metaName, name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return refuseForeign(fsys)
}

// refuseForeign refuses a directory in which other programs keep their files. A
// new file system's lost+found and hidden files are no reason.
func refuseForeign(fsys vfs.FS) error {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return fmt.Errorf("look into the data directory: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		own := strings.HasPrefix(name, metaName) || name == ballastName
		if !own && name != "lost+found" && !strings.HasPrefix(name, ".") {
			return fmt.Errorf("the directory is no data directory and not empty (%s): give --data-dir a new "+
				"or an empty directory; nothing was changed", name)
		}
	}
	return nil
}
