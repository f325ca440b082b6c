package record

import "io"

// ValidateSlowly is ValidateProduced of an uncompressed batch, record by record.
func ValidateSlowly(b Batch, limits ProduceLimits) error {
	w := newWalk(b, &limits)
	i := 0
	for w.index < w.count {
		next, err := w.step(b.payload(), i)
		if err != nil {
			return err
		}
		i = next
	}
	if i != len(b.payload()) {
		return invalid(ReasonInvalidRecord, "%d bytes follow the last of %d records", len(b.payload())-i,
			w.count)
	}
	return nil
}

// ValidateInPieces is ValidateProduced of an uncompressed batch as if its
// records came out of a codec in pieces of the given size.
func ValidateInPieces(b Batch, limits ProduceLimits, size int) error {
	w := newWalk(b, &limits)
	return w.overStream(&stream{
		from: &pieces{rest: b.payload(), size: size},
		room: limits.MaxDecompressedBytes,
	})
}

type pieces struct {
	rest []byte
	size int
}

func (p *pieces) next(int64) ([]byte, error) {
	if len(p.rest) == 0 {
		return nil, io.EOF
	}
	n := min(p.size, len(p.rest))
	piece := p.rest[:n:n]
	p.rest = p.rest[n:]
	return piece, nil
}

// XXH32 is the checksum of the LZ4 frame.
func XXH32(b []byte) uint32 { return xxh32(b) }
