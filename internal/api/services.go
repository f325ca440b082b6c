// Package api answers the Kafka protocol: one file per request or per family of
// small ones, and one table (table.go) of keys, versions and handlers.
//
// It assumes that package wire calls a handler in the order in which a
// connection's requests arrived, and writes the answers in that order. A handler
// decodes, resolves and authorises, calls the room that owns the matter, and
// turns the outcome into the protocol's bytes. Handlers of requests whose effect
// is complete when they return may hand back an answer that is not ready yet
// (Produce, Fetch, the group requests); all others are answered at once.
//
// Invariants: what the table advertises works in every version it names; only
// package refusal turns errors into protocol codes; a stranger's bytes never panic.
//
// Deliberately absent: state. What lives longer than a request belongs to
// another room, but for the fetch sessions, which are the protocol's own.
package api

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/wire"
)

// Services are the rooms that handlers call.
type Services struct {
	NodeID     kafka.BrokerID
	LogDir     string // As shown by DescribeLogDirs.
	Partitions *partition.Table
	Topics     *topics.Directory
	Control    Control
	Groups     *groups.Coordinator
	// Transactions is the transaction coordinator, and Markers what writes markers here.
	Transactions *transactions.Coordinator
	Markers      Markers
	Quorum       Quorum
	Peers        Peers // The way to other brokers; nil on a broker that is alone.
	Disk         Disk
	Broker       func() *config.Broker // The broker's settings as they are now.
	// Leased says that no other broker can have taken over from this one without its
	// knowledge; nil for always.
	Leased func() bool
	Now    func() time.Time
	Logger *slog.Logger
	// Reach is told what clients do, to find those that cannot reach the address
	// they were told; nil for nobody.
	Reach Reach

	// OutOfTouch reports whether this broker has not heard of the active controller for so
	// long that others may lead in its place, and Hangs whether its disk hangs, so that it
	// wants others to; nil for never.
	OutOfTouch, Hangs func() bool

	errors    errorCounts
	letGo     letGo
	followers followers

	versions []kmsg.ApiVersionsResponseApiKey
	// memory is for requests of clients, others for those of brokers.
	memory, others *memory
}

// Reach hears of requests: Asked of those for metadata, Came of those with
// which a client begins to work.
type Reach interface {
	Asked(*wire.Request)
	Came(*wire.Request)
}

// Disk is what DescribeLogDirs asks of the data directory.
type Disk interface {
	// Usage returns free and total bytes.
	Usage() (free, total uint64, err error)
}

// image returns the metadata as this broker knows it.
func (s *Services) image() *metadata.Image { return s.Control.Image() }
