package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is rows of cells under named columns.
type table struct {
	columns []column
	rows    [][]cell
	// empty is what people read where there are no rows.
	empty string
}

// column describes the cells under a name.
type column struct {
	name  string
	right bool // Numbers stand at the right.
}

// cell is a text and the style it has on a terminal. person, if set, is shown to
// people instead of text.
type cell struct {
	text   string
	person string
	style  style
}

// newTable returns a table. A column whose name starts with > stands at the
// right.
func newTable(names ...string) *table {
	t := &table{}
	for _, n := range names {
		name, right := strings.CutPrefix(n, ">")
		t.columns = append(t.columns, column{name, right})
	}
	return t
}

// add appends a row of cells, strings or anything that prints.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case cell:
			row[i] = v
		case string:
			row[i] = cell{text: v}
		default:
			row[i] = cell{text: fmt.Sprint(v)}
		}
	}
	t.rows = append(t.rows, row)
}

// dropFirst removes the first column, which a heading says already.
func (t *table) dropFirst() {
	t.columns = t.columns[1:]
	for i := range t.rows {
		t.rows[i] = t.rows[i][1:]
	}
}

// number is a cell that people see with its thousands apart.
func number(n int64) cell { return cell{text: fmt.Sprint(n), person: thousands(n)} }

// sizeCell is a cell of bytes that people see in a larger unit.
func sizeCell(n int64) cell { return cell{text: fmt.Sprint(n), person: byteSize(n)} }

// missing is the cell of a value that is not there: "-" for everybody.
func missing() cell { return cell{text: "-", style: styleDim} }

func (c cell) shown() string {
	if c.person != "" {
		return c.person
	}
	return visible(c.text)
}

// align prints the table for people.
func (t *table) align(w *bufio.Writer, p painter) {
	if len(t.rows) == 0 {
		if t.empty != "" {
			fmt.Fprintln(w, t.empty)
		}
		return
	}
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.name)
	}
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.shown()))
		}
	}
	header := make([]cell, len(t.columns))
	for i, c := range t.columns {
		header[i] = cell{text: strings.ToUpper(c.name), style: styleDim}
	}
	for _, row := range append([][]cell{header}, t.rows...) {
		t.alignRow(w, p, row, widths)
	}
}

// drawn returns the lines that align prints.
func (t *table) drawn(p painter) []string {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	t.align(w, p)
	_ = w.Flush() // A buffer takes everything.
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func (t *table) alignRow(w *bufio.Writer, p painter, row []cell, widths []int) {
	for i, c := range row {
		text := c.shown()
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		switch {
		case t.columns[i].right:
			text = space + p.apply(c.style, text)
		case i < len(row)-1:
			text = p.apply(c.style, text) + space
		default:
			text = p.apply(c.style, text)
		}
		if i > 0 {
			w.WriteString("  ")
		}
		w.WriteString(text)
	}
	w.WriteByte('\n')
}

// lines prints the table for scripts.
func (t *table) lines(w *bufio.Writer) {
	for _, row := range t.rows {
		for i, c := range row {
			if i > 0 {
				w.WriteByte('\t')
			}
			w.WriteString(escapeField(c.text))
		}
		w.WriteByte('\n')
	}
}

// columnsHelp is the sentence of a command's help that names the columns of its
// plain lines.
func columnsHelp(names ...string) string {
	return "Plain lines have the columns " + strings.Join(names, ", ") + "."
}

// escapeField makes a value fit between two tabs.
func escapeField(s string) string {
	if !strings.ContainsAny(s, "\t\n\r\\") {
		return s
	}
	return strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(s)
}
