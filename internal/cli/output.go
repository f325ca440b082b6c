package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// form is how results are printed.
type form int8

const (
	formTable form = iota // Aligned, for people.
	formPlain             // Tab-separated lines, for scripts.
	formJSON              // One document.
)

// output prints what commands have to say. Remarks may come from any goroutine;
// results have one writer at a time.
type output struct {
	stdout   *bufio.Writer
	results  io.Writer // What stdout writes to.
	form     form
	terminal bool // Results go to a terminal.
	paint    painter

	mu      sync.Mutex // Guards what follows.
	stderr  io.Writer
	remarks painter
	// live is the progress line that stands on the terminal, or "".
	live string
	// liveTerminal says that progress lines can be drawn at all.
	liveTerminal bool
}

func newOutput(stdout, stderr io.Writer) *output {
	return &output{
		stdout: bufio.NewWriterSize(stdout, 64<<10), results: stdout, stderr: stderr,
		form: formPlain, terminal: isTerminal(stdout), liveTerminal: isTerminal(stderr),
	}
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// configure takes the flags and the environment into account.
func (o *output) configure(form, color string, vars map[string]string) error {
	switch form {
	case "auto":
		if o.terminal {
			o.form = formTable
		}
	case "table":
		o.form = formTable
	case "plain":
		o.form = formPlain
	case "json":
		o.form = formJSON
	default:
		return usagef("--output %q: want table, plain, json or auto", form)
	}
	switch color {
	case "auto":
		dumb := vars["NO_COLOR"] != "" || vars["TERM"] == "dumb"
		o.paint = painter(o.terminal && !dumb)
		o.remarks = painter(o.liveTerminal && !dumb)
	case "always":
		o.paint, o.remarks = true, true
	case "never":
		o.paint, o.remarks = false, false
	default:
		return usagef("--color %q: want auto, always or never", color)
	}
	return nil
}

// show prints a result: v as JSON, or else the table.
func (o *output) show(v any, t *table) error {
	switch o.form {
	case formJSON:
		return o.json(v)
	case formTable:
		t.align(o.stdout, o.paint)
	case formPlain:
		t.lines(o.stdout)
	}
	return o.flush()
}

// json prints v as one indented document.
func (o *output) json(v any) error {
	e := json.NewEncoder(o.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return o.flush()
}

// printf prints a piece of a result for people.
func (o *output) printf(format string, args ...any) {
	fmt.Fprintf(o.stdout, format, args...)
}

// flush hands what was printed to the system.
func (o *output) flush() error {
	if err := o.stdout.Flush(); err != nil {
		return failf("write the result: %w", err)
	}
	return nil
}

// remark says something beside the result.
func (o *output) remark(format string, args ...any) {
	o.say(fmt.Sprintf(format, args...))
}

// note is a remark that a script does not want: it is said only where results
// are for people.
func (o *output) note(format string, args ...any) {
	if o.form == formTable {
		o.say(fmt.Sprintf(format, args...))
	}
}

// warn says something that the user should look at.
func (o *output) warn(format string, args ...any) {
	o.say(o.remarks.yellow("warning: ") + fmt.Sprintf(format, args...))
}

// failure prints why a command failed, after what it had to print.
func (o *output) failure(f *failure) {
	_ = o.stdout.Flush() // The failure at hand is what counts.
	var b strings.Builder
	b.WriteString(o.remarks.red("error: "))
	for i, line := range strings.Split(strings.Join(append([]string{f.message}, f.hints...), "\n"),
		"\n") {
		if i > 0 {
			b.WriteString("\n  ")
		}
		b.WriteString(visible(line))
	}
	o.say(b.String())
}

// say writes a line to the standard error, above the progress line.
func (o *output) say(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	live := o.live
	o.drawLocked("")
	fmt.Fprintln(o.stderr, line)
	o.drawLocked(live)
}

// progress replaces the progress line, on a terminal only; "" removes it.
func (o *output) progress(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.liveTerminal {
		o.drawLocked(line)
	}
}

func (o *output) drawLocked(line string) {
	if o.live != "" {
		fmt.Fprint(o.stderr, "\r\x1b[K")
	}
	if line != "" {
		fmt.Fprint(o.stderr, line)
	}
	o.live = line
}

// jsonLine prints v as one line of a stream of documents. It does not flush.
func (o *output) jsonLine(v any) error {
	e := json.NewEncoder(o.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
