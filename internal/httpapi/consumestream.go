package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// How a stream keeps its client and what is between them awake.
const (
	// streamOpening is how long a stream without records waits before it begins:
	// until then a refusal has a status of its own.
	streamOpening = 250 * time.Millisecond
	// streamSilence is the longest that a stream is silent.
	streamSilence = 10 * time.Second
	// streamStep bounds what is written at a time, and so held while a client does not
	// take it, but for a record that is larger.
	streamStep = 256 << 10
)

// stream answers with records as they come, until the time that the caller gave
// is over, or the caller is gone.
func (c *reading) stream(w http.ResponseWriter, r *http.Request, f form) error {
	p := c.server.takePage(f, c.text)
	p.stale = c.stale
	c.member.MaxBytes, c.single.MaxBytes = min(c.member.MaxBytes, streamStep), min(c.single.MaxBytes, streamStep)
	defer p.release()
	until := time.Now().Add(c.wait)
	begun := false
	for {
		left := time.Until(until)
		wait := min(max(left, 0), streamSilence)
		if !begun {
			wait = min(wait, streamOpening)
		}
		b, err := c.read(r.Context(), wait, p)
		if err != nil && !begun {
			return err
		}
		if !begun {
			c.begin(w, f)
			begun = true
		}
		over := err != nil || time.Until(until) <= 0
		switch {
		case err != nil:
			p.out = c.appendFailure(p.out, f, err)
		case over:
			p.out = c.appendLast(p.out, f)
		case b.Records == 0 && f == inLines:
			p.out = append(p.out, '\n')
		case b.Records == 0:
			p.out = append(p.out, ": nothing yet\n\n"...)
		}
		extendWrite(w)
		_, err = w.Write(p.out)
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			b.Return()
			return nil // Nobody is there to be told.
		}
		if over {
			return nil
		}
		p.empty()
	}
}

// begin begins the answer.
func (c *reading) begin(w http.ResponseWriter, f form) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	if f == inLines {
		h.Set("Content-Type", "application/x-ndjson")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // For proxies that would collect what is to be seen now.
	c.markStale(h)
	if c.group {
		h.Set("Strandline-Member", c.member.Member)
		h.Set("Strandline-Generation", strconv.Itoa(int(c.generation)))
	}
	w.WriteHeader(http.StatusOK)
}

// appendLast says that the stream ends because its time is over, and where to
// read on.
func (c *reading) appendLast(dst []byte, f form) []byte {
	if f == inEvents {
		dst = append(dst, "event: end\ndata: "...)
	}
	dst = append(c.appendEnd(append(dst, '{')), "}\n"...)
	if f == inEvents {
		dst = append(dst, '\n')
	}
	return dst
}

// appendFailure says that the stream ends because of an error.
func (c *reading) appendFailure(dst []byte, f form, err error) []byte {
	_, problem := problemOf(err)
	body, err := json.Marshal(problemBody{problem})
	if err != nil {
		panic("httpapi: a problem that is no JSON: " + err.Error())
	}
	if f == inEvents {
		dst = append(dst, "event: error\ndata: "...)
	}
	dst = append(append(dst, body...), '\n')
	if f == inEvents {
		dst = append(dst, '\n')
	}
	return dst
}
