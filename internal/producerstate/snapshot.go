package producerstate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// The snapshot file: Kafka's version 1, then what Kafka does not keep. Kafka's
// readers check the checksum over everything and ignore what follows the
// entries. docs/format/producer-snapshot.md has the fields.
const (
	snapshotVersion = 1
	crcAt           = 2
	crcCoversFrom   = 6
	headerSize      = 10
	entrySize       = 46

	windowMagic     = 0x53545731 // "STW1"
	windowHeader    = 4
	windowEntrySize = 9
	windowBatchSize = 24
)

// castagnoli is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode appends a snapshot of the table to dst.
func (t *Table) Encode(dst []byte) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint16(dst, snapshotVersion)
	dst = be.AppendUint32(dst, 0) // The checksum, below.
	dst = be.AppendUint32(dst, uint32(len(t.entries)))
	for e := t.recent.first; e != nil; e = e.links[listRecent].next {
		newest := batch{lastOffset: e.lastOffset, lastSequence: noSequence}
		if b := e.newest(); b != nil {
			newest = *b
		}
		dst = be.AppendUint64(dst, uint64(e.id))
		dst = be.AppendUint16(dst, uint16(e.epoch))
		dst = be.AppendUint32(dst, uint32(newest.lastSequence))
		dst = be.AppendUint64(dst, uint64(newest.lastOffset))
		dst = be.AppendUint32(dst, uint32(newest.offsetDelta))
		dst = be.AppendUint64(dst, uint64(e.timestamp))
		dst = be.AppendUint32(dst, uint32(e.coordinatorEpoch))
		dst = be.AppendUint64(dst, uint64(e.txnFirstOffset))
	}
	dst = be.AppendUint32(dst, windowMagic)
	for e := t.recent.first; e != nil; e = e.links[listRecent].next {
		dst = be.AppendUint64(dst, uint64(e.lastAppendMs))
		dst = append(dst, byte(e.count))
		for _, b := range e.batches[:e.count] {
			dst = be.AppendUint32(dst, uint32(b.lastSequence))
			dst = be.AppendUint32(dst, uint32(b.offsetDelta))
			dst = be.AppendUint64(dst, uint64(b.lastOffset))
			dst = be.AppendUint64(dst, uint64(b.timestamp))
		}
	}
	be.PutUint32(dst[start+crcAt:], crc32.Checksum(dst[start+crcCoversFrom:], castagnoli))
	return dst
}

// Decode returns the table of a snapshot, ours or Kafka's. A producer whose last
// append it does not tell, or tells to be in the future, counts as heard of at
// nowMs. The error is a *SnapshotError; the owner then falls back to an older
// snapshot and more of the log.
func Decode(data []byte, options Options, nowMs int64) (*Table, error) {
	be := binary.BigEndian
	if len(data) < headerSize {
		return nil, refuse(len(data), "it ends inside the header")
	}
	if version := be.Uint16(data); version != snapshotVersion {
		return nil, refuse(0, "version %d is not supported, only %d", version, snapshotVersion)
	}
	if want, got := be.Uint32(data[crcAt:]), crc32.Checksum(data[crcCoversFrom:],
		castagnoli); want != got {
		return nil, refuse(crcAt, "the checksum is %#08x but the bytes have %#08x", want, got)
	}
	count := int64(int32(be.Uint32(data[crcCoversFrom:])))
	if count < 0 || count > int64(len(data)-headerSize)/entrySize {
		return nil, refuse(crcCoversFrom, "it declares %d producers in %d bytes", count, len(data))
	}
	t := New(options)
	entries := make([]*entry, 0, count)
	at := headerSize
	for range count {
		e, err := decodeEntry(data, at, nowMs)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
		at += entrySize
	}
	if err := decodeWindows(entries, data, at, nowMs); err != nil {
		return nil, err
	}
	if err := t.fill(entries); err != nil {
		return nil, err
	}
	return t, nil
}

// decodeEntry decodes Kafka's entry at a position that is known to hold one.
func decodeEntry(data []byte, at int, nowMs int64) (*entry, error) {
	be, p := binary.BigEndian, data[at:at+entrySize]
	e := newEntry(kafka.ProducerID(be.Uint64(p)))
	e.epoch = kafka.ProducerEpoch(be.Uint16(p[8:]))
	e.timestamp, e.lastAppendMs = int64(be.Uint64(p[26:])), nowMs
	e.coordinatorEpoch = int32(be.Uint32(p[34:]))
	e.txnFirstOffset = kafka.Offset(be.Uint64(p[38:]))
	newest := batch{
		lastSequence: int32(be.Uint32(p[10:])),
		lastOffset:   kafka.Offset(be.Uint64(p[14:])),
		offsetDelta:  int32(be.Uint32(p[22:])),
		timestamp:    e.timestamp,
	}
	if e.id < 0 || e.txnFirstOffset < kafka.NoOffset || e.epoch < -1 {
		return nil, refuse(at, "producer id %d, epoch %d, first offset of its transaction %d: none may "+
			"be negative",
			e.id, e.epoch, e.txnFirstOffset)
	}
	switch {
	case newest.lastOffset < 0:
	case newest.lastSequence == noSequence: // A coordinator's.
		e.lastOffset = newest.lastOffset
	case !newest.valid():
		return nil, refuse(at, "producer id %d: its last batch is impossible", e.id)
	default:
		e.remember(newest)
	}
	return e, nil
}

func (b *batch) valid() bool {
	return b.lastSequence >= 0 && b.offsetDelta >= 0 && b.lastOffset >= kafka.Offset(b.offsetDelta)
}

// decodeWindows replaces the one batch of each entry by its window, if the
// snapshot has the windows.
func decodeWindows(entries []*entry, data []byte, at int, nowMs int64) error {
	be := binary.BigEndian
	if len(data)-at < windowHeader || be.Uint32(data[at:]) != windowMagic {
		return nil
	}
	at += windowHeader
	for _, e := range entries {
		if len(data)-at < windowEntrySize {
			return refuse(at, "it ends before the window of producer id %d", e.id)
		}
		e.lastAppendMs = min(int64(be.Uint64(data[at:])), nowMs)
		count := int(data[at+8])
		at += windowEntrySize
		if count > Window || len(data)-at < count*windowBatchSize {
			return refuse(at, "producer id %d: it declares a window of %d batches", e.id, count)
		}
		kept := e.newest()
		if (kept == nil) != (count == 0) {
			return refuse(at, "producer id %d: its window does not match its entry", e.id)
		}
		var window [Window]batch
		for i := range count {
			window[i] = batch{
				lastSequence: int32(be.Uint32(data[at:])),
				offsetDelta:  int32(be.Uint32(data[at+4:])),
				lastOffset:   kafka.Offset(be.Uint64(data[at+8:])),
				timestamp:    int64(be.Uint64(data[at+16:])),
			}
			if !window[i].valid() || i > 0 && window[i].lastOffset <= window[i-1].lastOffset {
				return refuse(at, "producer id %d: batch %d of its window is impossible", e.id, i)
			}
			at += windowBatchSize
		}
		if kept != nil && (window[count-1].lastOffset != kept.lastOffset ||
			window[count-1].lastSequence != kept.lastSequence) {
			return refuse(at, "producer id %d: its window does not end with its last batch", e.id)
		}
		e.batches, e.count = window, int8(count)
	}
	return nil
}

// fill takes over the entries in the order of their last appends. It leaves it
// to the next new producer to trim the table, as it would have been without the
// snapshot.
func (t *Table) fill(entries []*entry) error {
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Compare(a.lastAppendMs, b.lastAppendMs)
	})
	for _, e := range entries {
		if _, twice := t.entries[e.id]; twice {
			return refuse(headerSize, "producer id %d is in it twice", e.id)
		}
		t.insert(e)
	}
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Compare(a.txnFirstOffset, b.txnFirstOffset)
	})
	for _, e := range entries {
		if e.txnFirstOffset != kafka.NoOffset {
			t.open.push(e)
		}
	}
	return nil
}

func refuse(position int, format string, args ...any) *SnapshotError {
	return &SnapshotError{Position: position, Reason: fmt.Sprintf(format, args...)}
}
