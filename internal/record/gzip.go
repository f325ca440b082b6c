package record

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipSource streams gzip members. Memory is the 32 KiB window and one chunk.
type gzipSource struct {
	in    bytes.Reader
	gz    *gzip.Reader
	chunk []byte
}

func (g *gzipSource) open(src []byte) error {
	g.in.Reset(src)
	if g.gz == nil {
		g.gz = new(gzip.Reader)
	}
	if g.chunk == nil {
		g.chunk = make([]byte, chunkSize)
	}
	return noEOF(g.gz.Reset(&g.in))
}

func (g *gzipSource) next(int64) ([]byte, error) { return readChunk(g.gz, g.chunk) }

func (g *gzipSource) release() { g.in.Reset(nil) }

// readChunk reads once into chunk; io.EOF only with no bytes.
func readChunk(r io.Reader, chunk []byte) ([]byte, error) {
	for {
		n, err := r.Read(chunk)
		if n > 0 {
			return chunk[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// noEOF makes the end of data where there must be more an error of its own, as
// io.EOF means the proper end.
func noEOF(err error) error {
	if err == io.EOF { //nolint:errorlint // Only the bare value means the end.
		return io.ErrUnexpectedEOF
	}
	return err
}
