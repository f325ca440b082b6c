// Package shard is the contract between a coordinator and the machines it
// hosts: one machine per partition of an internal topic.
//
// A machine is a pure state machine. A request or a Tick leaves its outcome in
// an Effects: records to append, and replies to send once those records are
// committed. The host appends first, replays what it appended, and holds the
// replies back until the high watermark has passed them. Recovery replays the
// same records, so live path and recovery are one code.
//
// Laws that a machine keeps:
//
//   - Durable state changes in Replay alone. What a machine keeps besides (parked
//     callers, timers, members that are still joining) is soft: losing it with
//     the leadership costs clients a retry and nothing else.
//   - A machine is driven by one goroutine at a time, and the host calls nothing
//     between the method that filled an Effects and the Replay of its records.
//
// It imports the vocabulary only, so that pure rooms may import it.
package shard

import (
	"math"

	"github.com/strandline/strandline/internal/kafka"
)

// NoDeadline is the deadline of a machine that waits for nothing.
const NoDeadline int64 = math.MaxInt64

// Record is a record of the machine's partition.
type Record struct {
	Key, Value  []byte // Value is nil in a tombstone. Valid during the call only.
	Offset      kafka.Offset
	TimestampMs int64
}

// KeyValue is a record to append; a nil Value is a tombstone.
type KeyValue struct{ Key, Value []byte }

// Caller is who waits for a reply.
type Caller interface {
	// Complete hands over the reply. It is called once, without a lock held, and
	// must not block.
	Complete(response any)
}

// Reply is a response on its way to a caller.
type Reply struct {
	To       Caller
	Response any
}

// Effects is the outcome of one step of a machine. It belongs to the host,
// which uses it again for the next step.
type Effects struct {
	// Records are appended together, in order.
	Records []KeyValue
	// Replies are sent when Records are committed and the high watermark has
	// reached MinHighWatermark; at once if there is nothing to wait for.
	Replies []Reply
	// MinHighWatermark is for a reply that tells of records appended before.
	MinHighWatermark kafka.Offset
	// Transaction, if set, says that the records are part of it. The machine is a
	// Transactional one.
	Transaction *Transaction
	// Subject is the machine's own note of what the step was about, for
	// Rejected.
	Subject string

	arena []byte
}

// Transaction is the producer's transaction that records are part of.
type Transaction struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	// Guard is what the partition gave before the producer was verified, and wants to
	// see again. It means nothing to the machine.
	Guard any
}

// Reset empties the effects and keeps their memory.
func (fx *Effects) Reset() {
	clear(fx.Records)
	clear(fx.Replies)
	fx.Records, fx.Replies = fx.Records[:0], fx.Replies[:0]
	fx.MinHighWatermark, fx.Subject, fx.Transaction = 0, "", nil
	if cap(fx.arena) > maxKeptArena {
		fx.arena = nil
	}
	fx.arena = fx.arena[:0]
}

// The arena's first size, and the most that is kept of it between steps.
const (
	firstArena   = 512
	maxKeptArena = 64 << 10
)

// Append adds a record. The functions append its key and value to what they are
// given; a nil value function makes a tombstone.
func (fx *Effects) Append(key, value func(dst []byte) []byte) {
	kv := KeyValue{Key: fx.encode(key)}
	if value != nil {
		kv.Value = fx.encode(value)
	}
	fx.Records = append(fx.Records, kv)
}

// encode runs an encoder on the arena. When the arena grows, the records made
// before keep the old memory, which is as good.
func (fx *Effects) encode(enc func([]byte) []byte) []byte {
	if fx.arena == nil {
		fx.arena = make([]byte, 0, firstArena) // Never nil: that would be a tombstone.
	}
	start := len(fx.arena)
	fx.arena = enc(fx.arena)
	return fx.arena[start:len(fx.arena):len(fx.arena)]
}

// Reply adds a reply. A nil caller wants none.
func (fx *Effects) Reply(to Caller, response any) {
	if to != nil {
		fx.Replies = append(fx.Replies, Reply{to, response})
	}
}

// WaitFor holds the replies back until the record at offset is committed.
func (fx *Effects) WaitFor(offset kafka.Offset) {
	fx.MinHighWatermark = max(fx.MinHighWatermark, offset+1)
}

// Machine is one shard of a coordinator.
type Machine interface {
	// Replay applies a record of the log. An error means that the record is not
	// one this machine could have written; the state is then unchanged.
	Replay(r Record) error
	// Loaded is called once, after the log was replayed and before anything else.
	Loaded(nowMs int64)
	// Tick does one piece of work that is due; the host calls it again while
	// Deadline is not in the future.
	Tick(nowMs int64, fx *Effects)
	// Deadline returns when Tick wants to be called next, or NoDeadline. It may be
	// too early but never too late.
	Deadline() int64
	// Rejected is called instead of Replay when the records of fx could not be
	// appended: it turns the replies in fx into refusals with code.
	Rejected(nowMs int64, fx *Effects, code kafka.Code)
	// Late turns the replies in fx, whose records were appended and are not
	// committed in time, into refusals with code. They may still be committed, so
	// it changes nothing else.
	Late(fx *Effects, code kafka.Code)
	// Unloaded is called last: it turns the replies in fx into refusals with code
	// and adds one for every caller that the machine has parked.
	Unloaded(fx *Effects, code kafka.Code)
}

// Clocked is a Machine whose deadlines are lengths of time from some moment on.
type Clocked interface {
	// ClockSet says that somebody set the clock by so much since the last call of any
	// method: deadlines move along. What was written down stays.
	ClockSet(byMs int64)
}

// Transactional is a machine whose records may be part of transactions.
type Transactional interface {
	Machine
	// ReplayPending applies a record that counts only when the producer's transaction
	// is committed. An error means the same as one of Replay.
	ReplayPending(r Record, producer kafka.ProducerID) error
	// EndTransaction applies the marker, at an offset, that ends the producer's
	// transaction. Live as in recovery it comes in the order of the log.
	EndTransaction(producer kafka.ProducerID, commit bool, marker kafka.Offset)
}

// Outcome is the response to the host's own step of writing a marker. A Transactional
// machine refuses it as it does its own responses.
type Outcome struct{ Code kafka.Code }
