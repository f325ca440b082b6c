package partition

import (
	"sync/atomic"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// traffic counts what producers wrote and readers were sent. An append and an
// answer cost two additions each, however many records they hold.
type traffic struct {
	bytesIn, recordsIn, bytesOut, recordsOut atomic.Uint64
	copiedIn, copiedOut                      atomic.Uint64
}

// Traffic is what went through a partition since it was opened here.
type Traffic struct {
	// BytesIn are the batches that were appended, as stored; a batch that was
	// there already does not count.
	BytesIn, RecordsIn uint64
	// BytesOut are the batches that readers were sent, as stored. RecordsOut
	// counts offsets: of a compacted log that is an upper bound.
	BytesOut, RecordsOut uint64
	// CopiedIn are the batches that were fetched from the leader, CopiedOut those that
	// followers were sent; they count in none of the others.
	CopiedIn, CopiedOut uint64
}

// Traffic returns the counts so far.
func (p *Partition) Traffic() Traffic {
	t := &p.traffic
	return Traffic{
		BytesIn: t.bytesIn.Load(), RecordsIn: t.recordsIn.Load(),
		BytesOut: t.bytesOut.Load(), RecordsOut: t.recordsOut.Load(),
		CopiedIn: t.copiedIn.Load(), CopiedOut: t.copiedOut.Load(),
	}
}

func (t *traffic) noteAppended(bs []record.Batch, info commitlog.AppendInfo) {
	if info.Duplicate {
		return
	}
	bytes := 0
	for _, b := range bs {
		bytes += b.Size()
	}
	t.bytesIn.Add(uint64(bytes))
	t.recordsIn.Add(uint64(info.LastOffset - info.BaseOffset + 1))
}

// NoteSent counts stored bytes that a reader was sent: from the offset it asked
// for up to next. Whoever answers a reader calls it, since what was read need
// not have been sent.
func (p *Partition) NoteSent(bytes int, from, next kafka.Offset) {
	p.traffic.bytesOut.Add(uint64(bytes))
	p.traffic.recordsOut.Add(uint64(max(next-from, 0)))
}

// Behind returns how many offsets below the leader's high watermark a follower's log ended
// when it heard of it last; false if the replica follows nobody.
func (p *Partition) Behind() (int64, bool) {
	_, follows := p.Following()
	return p.behind.Load(), follows
}

// InSync returns how many replicas are in sync and how many there are to be;
// false if this broker does not lead the partition.
func (p *Partition) InSync() (inSync, wanted int, leads bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.leadsLocked(kafka.NoLeaderEpoch) != nil || p.progress.leader == nil {
		return 0, 0, false
	}
	return p.progress.leader.InSync(), p.settings.MinInSync, true
}
