package metadata

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
)

// A snapshot is a magic number with a version, the records that rebuild the image
// from nothing, and a CRC-32C of everything before it.
const snapshotMagic = "STRDMETA\x01"

const crcSize = 4

// AppendSnapshot appends the encoding of the image to dst. Equal images have equal
// bytes.
func (m *Image) AppendSnapshot(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, snapshotMagic...)
	dst = appendFrames(dst, m.Records())
	return binary.BigEndian.AppendUint32(dst, checksum(dst[start:]))
}

func checksum(data []byte) uint32 {
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}

// Records returns records that rebuild the image from nothing.
func (m *Image) Records() []Record {
	var out []Record
	if m.clusterID != "" {
		out = append(out, &ClusterRecord{m.clusterID, m.level, m.lastBrokerEpoch})
	}
	for _, b := range m.brokers {
		out = append(out, &BrokerRecord{b})
	}
	for t := range m.topics.all() {
		out = append(out, &TopicCreated{t.Name, t.ID, t.Partitions, t.Config})
	}
	resources := slices.SortedFunc(maps.Keys(m.configs), func(a, b Resource) int {
		return bytes.Compare([]byte(a.Name), []byte(b.Name))
	})
	for _, r := range resources {
		out = append(out, &ConfigChanged{Resource: r, Set: m.configs[r]})
	}
	if m.nextProducerID != 0 {
		out = append(out, &ProducerIDs{m.nextProducerID})
	}
	return out
}

// DecodeSnapshot is the inverse of AppendSnapshot.
func DecodeSnapshot(data []byte) (*Image, error) {
	body, ok := bytes.CutPrefix(data, []byte(snapshotMagic))
	if !ok || len(body) < crcSize {
		return nil, &FormatError{Reason: "this is not a metadata snapshot of version 1: a newer " +
			"version of Strandline wrote it, or it is damaged"}
	}
	end := len(data) - crcSize
	if checksum(data[:end]) != binary.BigEndian.Uint32(data[end:]) {
		return nil, &FormatError{Position: end, Reason: "the snapshot's checksum does not match: " +
			"it is damaged"}
	}
	records, err := decodeFrames(data[len(snapshotMagic):end], len(snapshotMagic))
	if err != nil {
		return nil, err
	}
	image, _, err := new(Image).Apply(records...)
	return image, err
}
