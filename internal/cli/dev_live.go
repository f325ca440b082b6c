package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// devScreen is what is drawn.
type devScreen struct {
	paint         painter
	width, height int
	nodes         []devRow
	state         *devState
	events        []devEvent // The newest last.
	// mode is what a digit does.
	mode devMode
}

// devRow is a node on the screen.
type devRow struct {
	spec   devSpec
	pid    int // 0 while it does not run.
	frozen bool
}

type devMode byte

const (
	devKill   devMode = 'k'
	devStop   devMode = 's'
	devFreeze devMode = 'p'
)

// live redraws until q is pressed or ctx ends.
func (d *dev) live(ctx context.Context, s *devState, looks <-chan devLook) error {
	screen := &devScreen{paint: d.out.paint, state: s, mode: devKill}
	keys, resized, leave := d.takeScreen()
	defer leave()
	late := time.NewTimer(devStart)
	defer late.Stop()
	for {
		if err := d.draw(screen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			if !s.ready {
				return d.notUp()
			}
		case <-resized:
		case e := <-d.cluster.ended:
			event, err := d.tookEnd(s, e)
			if err != nil {
				return err
			}
			screen.add(event)
		case l := <-looks:
			screen.add(s.seen(l)...)
			screen.add(d.restartDue()...)
		case key := <-keys:
			if d.pressed(screen, key) {
				return nil
			}
		}
	}
}

// maxDevEvents is how many are kept to be shown.
const maxDevEvents = 100

func (s *devScreen) add(events ...devEvent) {
	for _, e := range events {
		if e.Event != "leaders" || strings.Contains(e.Text, "(all led") { // The leaders stand above.
			s.events = append(s.events, e)
		}
	}
	s.events = s.events[max(0, len(s.events)-maxDevEvents):]
}

// pressed takes a key and reports whether it ends the program.
func (d *dev) pressed(s *devScreen, key byte) (quit bool) {
	switch {
	case key == keyCtrlC || key == 'q' || key == 'Q':
		return true
	case slices.Contains([]devMode{devKill, devStop, devFreeze}, devMode(key)):
		s.mode = devMode(key)
	case key == keyEscape:
		s.mode = devKill
	case key >= '1' && key <= '9' && int(key-'1') < len(d.cluster.nodes):
		s.add(d.act(s, d.cluster.nodes[key-'1']))
		s.mode = devKill
	}
	return false
}

// act does to a node what the mode says; one that does not run is started.
func (d *dev) act(s *devScreen, n *devNode) devEvent {
	now := d.now()
	if n.cmd == nil {
		return d.startAgain(n)
	}
	switch s.mode {
	case devStop:
		n.wished = true
		n.signal(syscall.SIGTERM)
		return devEvent{now, "stop", n.spec.id, "is asked to stop"}
	case devFreeze:
		n.thaw()
		if n.frozen {
			s.state.lost(n.spec.id, now)
			return devEvent{now, "frozen", n.spec.id, "is frozen (SIGSTOP)"}
		}
		return devEvent{now, "thawed", n.spec.id, "goes on (SIGCONT)"}
	}
	n.signal(syscall.SIGKILL)
	return devEvent{now, "kill", n.spec.id, "is killed (kill -9)"}
}

func (d *dev) draw(s *devScreen) error {
	s.width, s.height = 80, 24
	if f, ok := d.env.Stdout.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			s.width, s.height = w, h
		}
	}
	s.nodes = s.nodes[:0]
	for _, n := range d.cluster.nodes {
		s.nodes = append(s.nodes, devRow{n.spec, n.pid(), n.frozen})
	}
	d.out.printf("%s", homeCursor)
	for i, line := range renderDev(s) {
		if i > 0 {
			d.out.printf("\r\n")
		}
		d.out.printf("%s%s", line, clearRight)
	}
	d.out.printf("%s", clearBelow)
	return d.out.flush()
}

// devColors tell nodes apart.
func devColor(id int32) style {
	return [...]style{styleCyan, styleGreen, styleYellow, styleBold, stylePlain}[max(0, int(id)-1)%5]
}

// renderDev draws the screen. It depends on nothing else, so that it can be tested.
func renderDev(s *devScreen) []string {
	p, l := s.paint, &s.state.look
	title := p.bold("Strandline dev") + "  "
	if s.state.ready {
		title += fmt.Sprintf("%s  --brokers %s", plural(len(s.nodes), "node"), strings.Join(addressesOf(s.state.specs), ","))
	} else {
		title += "starting"
	}
	lines := []string{title, ""}
	lines = append(lines, devNodeTable(s).drawn(p)...)
	lines = append(lines, "")
	room := s.height - len(lines) - 2 // An empty line and the keys.
	topics := devTopicLines(l, p)
	shown := min(len(topics), max(1, room/2))
	lines = append(lines, topics[:shown]...)
	if more := len(topics) - shown; more > 0 {
		lines = append(lines, p.dim(fmt.Sprintf("... and %s", plural(more, "topic"))))
	}
	lines = append(lines, "")
	left := max(0, s.height-len(lines)-2)
	for _, e := range s.events[max(0, len(s.events)-left):] {
		lines = append(lines, p.dim(e.At.Format(devClock))+"  "+eventText(e))
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, s.foot())
	for i := range lines {
		lines[i] = cutLine(lines[i], s.width)
	}
	return lines
}

func devNodeTable(s *devScreen) *table {
	l := &s.state.look
	t := newTable("node", "state", ">pid", "kafka", "http", ">leads", "")
	for i, n := range s.nodes {
		id := int32(n.spec.id)
		state := cell{text: "up", style: styleGreen}
		switch {
		case n.pid == 0:
			state = cell{text: "down", style: styleRed}
		case n.frozen:
			state = cell{text: "frozen", style: styleYellow}
		case !slices.Contains(l.brokers, id):
			state = cell{text: "joining", style: styleYellow}
		case i < len(l.answers) && !l.answers[i]:
			state = cell{text: "silent", style: styleYellow}
		}
		role := cell{text: ""}
		if l.controller == id {
			role = cell{text: "controller", style: styleDim}
		}
		pid := missing()
		if n.pid > 0 {
			pid = cell{text: fmt.Sprint(n.pid)}
		}
		t.add(cell{text: fmt.Sprint(n.spec.id), style: devColor(id)}, state, pid, n.spec.address, orDash(n.spec.http),
			l.leads(id), role)
	}
	return t
}

// devTopicLines has a line for each topic: who leads its partitions, in their order.
func devTopicLines(l *devLook, p painter) []string {
	if len(l.topics) == 0 {
		return []string{p.dim("no topics yet: strandline topic create events --partitions 6")}
	}
	width := 0
	for _, t := range l.topics {
		width = max(width, len(visible(t.name)))
	}
	var lines []string
	for _, t := range l.topics {
		missing := 0
		leaders := leadersOf(t, func(part devPart) string {
			missing += part.replicas - part.isr
			if part.leader < 0 {
				return p.red("-")
			}
			return p.apply(devColor(part.leader), fmt.Sprint(part.leader))
		})
		line := fmt.Sprintf("%-*s  led by  %s", width, visible(t.name), leaders)
		if missing > 0 {
			line += p.yellow(fmt.Sprintf("  %s not in sync", plural(missing, "replica")))
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *devScreen) foot() string {
	text := map[devMode]string{
		devKill: "kill -9 (or start again)", devStop: "stop cleanly", devFreeze: "freeze or let go on",
	}[s.mode]
	return s.paint.dim(fmt.Sprintf("1-%d %s   s stop   p freeze   k kill   q quit", len(s.nodes), text))
}
