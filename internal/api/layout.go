package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// layouts say how the body of each request is laid out, so that what it will take
// decoded is known before anything is allocated for it: the library's decoder
// believes every count that the bytes behind it could hold.
//
//	1 2 4 8   an integer or boolean of so many bytes       u   a UUID
//	s b       a string, bytes; both may be null            [x] an array of x
//	{…}       a struct, tagged fields behind it            ?{…} one that may be null
//	x:3+ x:2-4   a field of these versions only
//
// Fields that are tagged do not appear: they are part of the tags. Produce is
// missing since it is read in place.
var layouts = map[kmsg.Key]string{
	kmsg.Fetch: "4:0-14 4 4 4 1 4:7+ 4:7+ [{s:0-12 u:13+ [{4 4:9+ 8 4:12+ 8:5+ 4}]}] " +
		"[{s:7-12 u:13+ [4]}]:7+ s:11+",
	kmsg.ListOffsets:             "4 1:2+ [{s [{4 4:4+ 8}]}] 4:10+",
	kmsg.Metadata:                "[{u:10+ s}] 1:4+ 1:8-10 1:8+",
	kmsg.OffsetCommit:            "s 4 s s:7+ 8:2-4 [{s:0-9 u:10+ [{4 8 4:6+ s}]}]",
	kmsg.OffsetFetch:             "s:0-7 [{s [4]}]:0-7 [{s s:9+ 4:9+ [{s:8-9 u:10+ [4]}]}]:8+ 1:7+",
	kmsg.FindCoordinator:         "s:0-3 1:1+ [s]:4+",
	kmsg.JoinGroup:               "s 4 4:1+ s s:5+ s [{s b}] s:8+",
	kmsg.Heartbeat:               "s 4 s s:3+",
	kmsg.LeaveGroup:              "s s:0-2 [{s s s:5+}]:3+",
	kmsg.SyncGroup:               "s 4 s s:3+ s:5+ s:5+ [{s b}]",
	kmsg.DescribeGroups:          "[s] 1:3+",
	kmsg.ListGroups:              "[s]:4+ [s]:5+",
	kmsg.ApiVersions:             "s:3+ s:3+ s:5+ 4:5+",
	kmsg.CreateTopics:            "[{s 4 2 [{4 [4]}] [{s s}]}] 4 1",
	kmsg.DeleteTopics:            "[{s u}]:6+ [s]:0-5 4",
	kmsg.DeleteRecords:           "[{s [{4 8}]}] 4",
	kmsg.InitProducerID:          "s 4 8:3+ 2:3+",
	kmsg.AddPartitionsToTxn:      "s:0-3 8:0-3 2:0-3 [{s [4]}]:0-3 [{s 8 2 1 [{s [4]}]}]:4+",
	kmsg.AddOffsetsToTxn:         "s 8 2 s",
	kmsg.EndTxn:                  "s 8 2 1",
	kmsg.WriteTxnMarkers:         "[{8 2 1 [{s [4]}] 4 1:2+}]",
	kmsg.TxnOffsetCommit:         "s s 8 2 4:3+ s:3+ s:3+ [{s:0-5 u:6+ [{4 8 4:2+ s}]}]",
	kmsg.DescribeTransactions:    "[s]",
	kmsg.ListTransactions:        "[s] [8] 8:1+ s:2+",
	kmsg.OffsetForLeaderEpoch:    "4:3+ [{s [{4 4 4}]}]",
	kmsg.DescribeACLs:            "1 s 1 s s 1 1",
	kmsg.CreateACLs:              "[{1 s 1 s s 1 1}]",
	kmsg.DeleteACLs:              "[{1 s 1 s s 1 1}]",
	kmsg.DescribeConfigs:         "[{1 s [s]}] 1 1:3+",
	kmsg.AlterConfigs:            "[{1 s [{s s}]}] 1",
	kmsg.DescribeLogDirs:         "[{s [4]}]",
	kmsg.CreatePartitions:        "[{s 4 [{[4]}]}] 4 1",
	kmsg.DeleteGroups:            "[s]",
	kmsg.IncrementalAlterConfigs: "[{1 s [{s 1 s}]}] 1",
	kmsg.OffsetDelete:            "s [{s [{4}]}]",
	kmsg.DescribeCluster:         "1 1:1+ 1:2+",
	kmsg.DescribeProducers:       "[{s [4]}]",
	kmsg.DescribeTopicPartitions: "[{s}] 4 ?{s 4}",

	kmsg.ElectLeaders:               "1:1+ [{s [4]}] 4",
	kmsg.AlterPartitionAssignments:  "4 1:1+ [{s [{4 [4]}]}]",
	kmsg.ListPartitionReassignments: "4 [{s [4]}]",
	kmsg.DescribeQuorum:             "[{s [{4}]}]",
	kmsg.UnregisterBroker:           "4",
	kmsg.AddRaftVoter:               "s 4 4 u [{s s 2}] 1:1+",
	kmsg.RemoveRaftVoter:            "s 4 u",

	kmsg.BrokerRegistration:  "4 s u [{s s 2 2}] [{s 2 2}] s 1:1+ [u]:2+ 8:3+",
	kmsg.BrokerHeartbeat:     "4 8 8 1 1",
	kmsg.AlterPartition:      "4 8 [{s:0-1 u:2+ [{4 4 [4]:0-2 [{4 8}]:3+ 1:1+ 4}]}]",
	kmsg.AllocateProducerIDs: "4 8",
}

// What things take decoded, at the most.
const (
	structBytes = 160 // An element of an array of structs.
	scalarBytes = 24  // An element of another array.
	tagBytes    = 128 // A tagged field, which goes into a map.
)

// size is what a request will be, decoded.
type size struct {
	elements int   // Of arrays of all levels, and tagged fields.
	bytes    int64 // Of memory.
	// aliased says that the decoder may have something point into the body: bytes, or a tagged
	// field, if it does not know it.
	aliased bool
}

// field is one field of a layout.
type field struct {
	kind       byte // '1', '2', '4', '8', 'u', 's', 'b', '[', '{' or '?'.
	first, end int16
	of         []field // Of a struct; the one element of an array.
}

// parseLayout reads a layout of the table. A mistake in it is a bug.
func parseLayout(text string) []field {
	p := layoutParser{text}
	fields := p.fields()
	if p.rest != "" {
		panic("api: layout ends in " + strconv.Quote(p.rest))
	}
	return fields
}

type layoutParser struct{ rest string }

func (p *layoutParser) next() byte {
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c
}

func (p *layoutParser) fields() []field {
	var fields []field
	for p.rest != "" && p.rest[0] != '}' {
		f := p.one()
		f.first, f.end = p.versions()
		fields = append(fields, f)
		p.rest = strings.TrimPrefix(p.rest, " ")
	}
	return fields
}

func (p *layoutParser) one() field {
	f := field{kind: p.next()}
	switch f.kind {
	case '[':
		f.of = []field{p.one()}
		p.next() // The bracket.
	case '{':
		f.of = p.fields()
		p.next()
	case '?':
		f.of = p.one().of
	}
	return f
}

// versions reads what follows a colon: "3+" or "2-4".
func (p *layoutParser) versions() (first, end int16) {
	const always = 1 << 14
	text, ok := strings.CutPrefix(p.rest, ":")
	if !ok {
		return 0, always
	}
	n := strings.IndexAny(text, " }]")
	if n < 0 {
		n = len(text)
	}
	p.rest = text[n:]
	from, to, isRange := strings.Cut(strings.TrimSuffix(text[:n], "+"), "-")
	low, err := strconv.Atoi(from)
	high := always
	if isRange && err == nil {
		high, err = strconv.Atoi(to)
		high++
	}
	if err != nil {
		panic("api: layout with versions " + text[:n])
	}
	return int16(low), int16(high)
}

// errTooLarge ends a measurement: nothing larger is taken.
var errTooLarge = errors.New("too large")

// measure goes through a body and returns what it will be, decoded. It stops with
// errTooLarge when that is more than most. It allocates nothing.
func measure(layout []field, body []byte, version int16, flexible bool, most size) (size, error) {
	m := measurer{body: bodyReader{src: body, flexible: flexible}, version: version, most: most}
	m.structure(layout)
	if m.tooLarge {
		return m.size, errTooLarge
	}
	return m.size, m.body.err
}

type measurer struct {
	body     bodyReader
	version  int16
	most     size
	size     size
	tooLarge bool
}

// add counts n things of so many bytes each, and reports whether to go on.
func (m *measurer) add(n int, each int64) bool {
	m.size.elements += n
	m.size.bytes += int64(n) * each
	if m.size.elements > m.most.elements || m.size.bytes > m.most.bytes {
		m.tooLarge = true
	}
	return !m.tooLarge && m.body.err == nil
}

func (m *measurer) structure(fields []field) {
	for i := range fields {
		if f := &fields[i]; m.version >= f.first && m.version < f.end && !m.tooLarge {
			m.value(f)
		}
	}
	m.tags()
}

func (m *measurer) value(f *field) {
	b := &m.body
	switch f.kind {
	case 's':
		m.size.bytes += int64(b.skipString())
	case 'b':
		n := len(b.nullableBytes())
		m.size.bytes += int64(n)
		m.size.aliased = m.size.aliased || n > 0
	case 'u':
		b.bytes(16)
	case '[':
		m.array(&f.of[0])
	case '{':
		m.structure(f.of)
	case '?':
		if present := b.bytes(1); present != nil && int8(present[0]) >= 0 {
			m.structure(f.of)
		}
	default:
		b.bytes(int(f.kind - '0'))
	}
}

func (m *measurer) array(element *field) {
	n := m.body.arrayLen()
	each := int64(scalarBytes)
	if element.kind == '{' {
		each = structBytes
	}
	if !m.add(n, each) {
		return
	}
	for range n {
		if m.value(element); m.tooLarge || m.body.err != nil {
			return
		}
	}
}

// tags goes through a section of tagged fields.
func (m *measurer) tags() {
	b := &m.body
	if !b.flexible || b.err != nil || m.tooLarge {
		return
	}
	n := b.uvarint()
	if n > len(b.src) {
		b.fail()
	}
	if !m.add(n, tagBytes) {
		return
	}
	m.size.aliased = m.size.aliased || n > 0
	for range n {
		b.uvarint()
		if m.size.bytes += int64(len(b.bytes(b.uvarint()))); b.err != nil {
			return
		}
	}
}

// skipString skips a string and returns its length.
func (b *bodyReader) skipString() int { return len(b.nullableString()) }

// compileLayouts makes the layouts of all requests of the table that have one.
func compileLayouts() map[int16][]field {
	out := make(map[int16][]field, len(layouts))
	for key, text := range layouts {
		out[key.Int16()] = parseLayout(text)
	}
	return out
}

// tooLargeError says why a request is not taken, and what to do about it.
func tooLargeError(bodyBytes int, got, most size) error {
	if got.elements > most.elements {
		return fmt.Errorf("of %d bytes, it has more than %d elements: ask for less at once, "+
			"or raise queued.max.request.bytes", bodyBytes, most.elements)
	}
	return fmt.Errorf("of %d bytes, it takes more than %d bytes decoded: ask for less at once, "+
		"or raise queued.max.request.bytes", bodyBytes, most.bytes)
}
