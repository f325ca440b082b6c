package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// topScreen is where and how a view is drawn.
type topScreen struct {
	paint         painter
	width, height int // 0 for as much as there is to say.
	live          bool
	sort          int
	filter        string
	typing        bool // The filter is being typed.
	paused        bool
	trouble       string // Why there is nothing newer; "" if all is well.
}

// The keys that mean something, beside letters.
const (
	keyCtrlC     = 3
	keyBackspace = 127
	keyDelete    = 8
	keyEnter     = '\r'
	keyEscape    = 27
)

// key takes a key and reports whether it ends the program.
func (s *topScreen) key(key byte) (quit bool) {
	if key == keyCtrlC {
		return true
	}
	if s.typing {
		s.typed(key)
		return false
	}
	switch key {
	case 'q', 'Q':
		return true
	case 's':
		s.sort = (s.sort + 1) % len(topSorts())
	case 'p', ' ':
		s.paused = !s.paused
	case '/':
		s.typing = true
	case keyEscape:
		s.filter = ""
	}
	return false
}

// typed takes a key while the filter is typed.
func (s *topScreen) typed(key byte) {
	switch {
	case key == keyEnter || key == '\n':
		s.typing = false
	case key == keyEscape:
		s.typing, s.filter = false, ""
	case key == keyBackspace || key == keyDelete:
		if _, n := utf8.DecodeLastRuneInString(s.filter); n > 0 {
			s.filter = s.filter[:len(s.filter)-n]
		}
	case key >= ' ':
		s.filter += string(rune(key)) // Names of topics are ASCII.
	}
}

// renderTop draws a view. It depends on nothing else, so that it can be tested.
func renderTop(v topView, s topScreen) []string {
	lines := topHead(v, s)
	room := 1 << 30
	if s.height > 0 {
		room = s.height - len(lines) - 1 // The last line is for the keys.
	}
	sections := []*table{topTopicTable(v), topGroupTable(v), topRequestTable(v)}
	shares := topShares(room, sections)
	for i, t := range sections {
		lines = append(lines, s.section(t, shares[i])...)
	}
	if s.live {
		for s.height > 0 && len(lines) < s.height-1 {
			lines = append(lines, "")
		}
		lines = append(lines, s.foot())
	}
	if s.width > 0 {
		for i := range lines {
			lines[i] = cutLine(lines[i], s.width)
		}
	}
	return lines
}

// topHead are the lines about the broker as a whole.
func topHead(v topView, s topScreen) []string {
	t, p := v.Total, s.paint
	title := p.bold("Strandline") + "  " + v.At.Format("15:04:05")
	if t.Uptime >= 0 {
		title += "  up " + roundDuration(time.Duration(t.Uptime)*time.Second)
	}
	title += fmt.Sprintf("  cpu %.0f%%  memory %s  %s", 100*t.CPU, byteSize(int64(t.RSS)),
		plural(int(t.Partitions), "partition"))
	lines := []string{
		title,
		fmt.Sprintf("in %s rec/s %s/s  out %s rec/s %s/s", perSecond(t.RecordsIn), byteSize(int64(t.BytesIn)),
			perSecond(t.RecordsOut), byteSize(int64(t.BytesOut))),
		fmt.Sprintf("connections %.0f of %.0f  in flight %.0f  request memory %s of %s", t.Connections,
			t.ConnectionsLimit, t.InFlight, byteSize(int64(t.Memory)), byteSize(int64(t.MemoryLimit))),
		fmt.Sprintf("disk %s free of %s  read %s/s  syncs %s/s p50 %s p99 %s", byteSize(int64(t.DiskFree)),
			byteSize(int64(t.DiskTotal)), byteSize(int64(t.DiskReads)), perSecond(t.Rounds), seconds(t.SyncP50), seconds(t.SyncP99)),
	}
	if alarms := t.alarms(); len(alarms) > 0 {
		lines = append(lines, p.red(strings.Join(alarms, ", ")))
	}
	if s.trouble != "" {
		lines = append(lines, p.red(visible(s.trouble)))
	}
	return lines
}

// alarms are what should not be.
func (t *topTotal) alarms() []string {
	var all []string
	for _, a := range []struct {
		n    float64
		what string
	}{
		{t.Offline, "offline"},
		{t.Corrupt, "corrupt"},
		{t.Leaderless, "without a leader"},
		{t.UnderMin, "under min.insync.replicas"},
		{t.UnderReplicated, "under-replicated"},
	} {
		if a.n > 0 {
			all = append(all, plural(int(a.n), "partition")+" "+a.what)
		}
	}
	if t.DiskTotal > 0 && t.DiskFree < t.DiskTotal/20 {
		all = append(all, "the disk is almost full")
	}
	return all
}

func topTopicTable(v topView) *table {
	t := newTable("topic", ">partitions", ">size", ">rec/s in", ">in/s", ">rec/s out", ">out/s")
	for _, x := range v.Topics {
		t.add(x.Topic, number(int64(x.Partitions)), sizeCell(int64(x.Size)), perSecond(x.RecordsIn), rateCell(x.BytesIn),
			perSecond(x.RecordsOut), rateCell(x.BytesOut))
	}
	return t
}

func topGroupTable(v topView) *table {
	t := newTable("group", ">members", ">topics", ">lag", ">behind")
	for _, g := range v.Groups {
		lag := number(int64(g.Lag))
		behind := cell{text: seconds(g.LagSeconds)}
		if g.LagSeconds >= 60 {
			behind.style = styleYellow
		}
		t.add(g.Group, number(int64(g.Members)), g.Topics, lag, behind)
	}
	return t
}

func topRequestTable(v topView) *table {
	t := newTable("request", ">per s", ">p50", ">p99", ">queue p99", ">errors/s")
	for _, r := range v.Requests {
		errors := cell{text: perSecond(r.Errors)}
		if r.Errors > 0 {
			errors.style = styleRed
		}
		t.add(r.Request, perSecond(r.Rate), seconds(r.P50), seconds(r.P99), seconds(r.QueueP99), errors)
	}
	return t
}

// rateCell is bytes per second.
func rateCell(bytes float64) cell {
	return cell{text: fmt.Sprintf("%.0f", bytes), person: byteSize(int64(bytes))}
}

// topShares divides the lines among the sections: each gets an equal share, and
// what one does not need the others get, the first before the last.
func topShares(room int, sections []*table) []int {
	const frame = 2 // An empty line and the heading.
	shares := make([]int, len(sections))
	left := room
	for i := range shares {
		if len(sections[i].rows) > 0 && left > frame {
			shares[i], left = frame, left-frame
		}
	}
	for given := true; given && left > 0; {
		given = false
		for i, t := range sections {
			if shares[i] > 0 && shares[i] < len(t.rows)+frame && left > 0 {
				shares[i]++
				left--
				given = true
			}
		}
	}
	return shares
}

// section is an empty line, the heading and as many rows as there is room for.
func (s *topScreen) section(t *table, room int) []string {
	if room < 2 {
		return nil
	}
	shown := *t
	if hidden := len(t.rows) - (room - 2); hidden > 0 {
		shown.rows = t.rows[:len(t.rows)-hidden]
	}
	if len(shown.rows) == 0 {
		return nil
	}
	return append([]string{""}, shown.drawn(s.paint)...)
}

// foot is the line of keys.
func (s *topScreen) foot() string {
	if s.typing {
		return "filter: " + visible(s.filter) + "_"
	}
	parts := []string{"q quit", "s sort: " + topSorts()[s.sort], "/ filter"}
	if s.filter != "" {
		parts[2] += ": " + visible(s.filter)
	}
	if s.paused {
		parts = append(parts, "p go on (paused)")
	} else {
		parts = append(parts, "p pause")
	}
	return s.paint.dim(strings.Join(parts, "  "))
}

// cutLine cuts a line to a width and leaves its colours whole.
func cutLine(line string, width int) string {
	var b strings.Builder
	escape := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case width == 0:
			continue
		default:
			width--
		}
		b.WriteRune(r)
	}
	return b.String()
}

// perSecond prints a rate: small ones with a digit behind the point.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	}
	return thousands(int64(rate + 0.5))
}

// seconds prints a time, or - if it is not known.
func seconds(s float64) string {
	if s < 0 {
		return "-"
	}
	return roundDuration(time.Duration(s * float64(time.Second)))
}

// lines is the view for scripts: what a line is about stands first in it.
func (v *topView) lines() *table {
	t := newTable()
	total := v.Total
	t.add("total", raw(total.RecordsIn), raw(total.BytesIn), raw(total.RecordsOut), raw(total.BytesOut),
		raw(total.Connections), raw(total.InFlight), raw(total.Memory), raw(total.DiskFree), raw(total.SyncP50),
		raw(total.SyncP99))
	for _, x := range v.Topics {
		t.add("topic", x.Topic, raw(x.Partitions), raw(x.Size), raw(x.RecordsIn), raw(x.BytesIn), raw(x.RecordsOut),
			raw(x.BytesOut))
	}
	for _, g := range v.Groups {
		t.add("group", g.Group, raw(g.Members), g.Topics, raw(g.Lag), raw(g.LagSeconds))
	}
	for _, r := range v.Requests {
		t.add("request", r.Request, raw(r.Rate), raw(r.P50), raw(r.P99), raw(r.QueueP99), raw(r.Errors))
	}
	return t
}

// raw prints a number for scripts.
func raw(n float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.6f", n), "0"), ".")
}
