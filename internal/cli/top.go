package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const topLong = `Watch a broker live: what comes in and goes out by topic, how far groups are behind,
how long requests take, connections, memory, the disk and its syncs.

It reads /metrics of the broker's HTTP listener: by default port 8080 beside port 9092 of
--brokers. With several addresses what they tell is added up.

On a terminal it redraws itself until q is pressed; s sorts by the next column, / filters by
name, p pauses. Elsewhere, or with -n, it prints what it sees and ends. Rates and times are of
the last interval.

`

// top is the command.
type top struct {
	*app
	http      []string
	count     int
	interval  time.Duration
	sort      string
	filter    string
	addresses []string
	last      topSample
}

func newTop(a *app) *cobra.Command {
	t := &top{app: a}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch topics, groups, latency and the disk live",
		Long: topLong + "Plain lines begin with what they are about: total, topic, group or request.\n" +
			jsonHelp[topView]() + "\nWith -n above 1 it is one object a line.",
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&t.http, "http", nil,
		"`addresses` of HTTP listeners of brokers (default port 8080 beside port 9092 of --brokers)")
	f.IntVarP(&t.count, "iterations", "n", 0, "print so many `times` and end (default 1 without a terminal)")
	f.DurationVar(&t.interval, "interval", time.Second, "`time` between two looks")
	f.StringVar(&t.sort, "sort", topSorts()[0], "`column` to sort by: "+strings.Join(topSorts(), ", "))
	f.StringVar(&t.filter, "filter", "", "show only topics and groups with this `text` in their name")
	return cmd
}

func (t *top) run(ctx context.Context) error {
	if err := t.check(); err != nil {
		return err
	}
	first, err := t.sample(ctx)
	if err != nil {
		return err
	}
	t.last = first
	if t.count == 0 && t.out.terminal && t.out.form == formTable {
		return t.live(ctx)
	}
	return t.print(ctx)
}

func (t *top) check() error {
	if t.interval < 100*time.Millisecond {
		return usagef("--interval %v: want 100ms or more", t.interval)
	}
	if t.count < 0 {
		return usagef("-n %d: want a number above zero", t.count)
	}
	if topSortOf(t.sort) < 0 {
		return usagef("--sort %q: want one of %s", t.sort, strings.Join(topSorts(), ", "))
	}
	var err error
	t.addresses, err = t.httpAddresses(t.http)
	return err
}

// print looks again and again and prints what it sees.
func (t *top) print(ctx context.Context) error {
	for range max(t.count, 1) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(t.interval):
		}
		v, err := t.look(ctx)
		if err != nil {
			return err
		}
		if err := t.show(v); err != nil {
			return err
		}
	}
	return nil
}

// look returns what happened since the last look.
func (t *top) look(ctx context.Context) (topView, error) {
	s, err := t.sample(ctx)
	if err != nil {
		return topView{}, err
	}
	v := viewBetween(t.last, s)
	t.last = s
	v.arrange(topSortOf(t.sort), t.filter)
	return v, nil
}

func (t *top) show(v topView) error {
	switch t.out.form {
	case formJSON:
		if t.count > 1 {
			if err := t.out.jsonLine(v); err != nil {
				return err
			}
			return t.out.flush()
		}
		return t.out.json(v)
	case formPlain:
		v.lines().lines(t.out.stdout)
	case formTable:
		t.out.printf("%s\n", strings.Join(renderTop(v, topScreen{paint: t.out.paint}), "\n"))
	}
	return t.out.flush()
}

// The sequences that a terminal understands.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // The other screen, without a cursor.
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearRight  = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// live redraws until q is pressed or ctx ends.
func (t *top) live(ctx context.Context) error {
	screen := topScreen{paint: t.out.paint, sort: topSortOf(t.sort), filter: t.filter, live: true}
	keys, resized, leave := t.takeScreen()
	defer leave()
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	v := viewBetween(t.last, t.last)
	for {
		if err := t.draw(v, &screen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if screen.key(key) {
				return nil
			}
		case <-resized:
		case <-tick.C:
			if screen.paused {
				continue
			}
			s, err := t.sample(ctx)
			if err != nil {
				screen.trouble = t.explain(err).message
				continue
			}
			screen.trouble = ""
			v, t.last = viewBetween(t.last, s), s
		}
	}
}

// takeScreen takes the terminal for a live view, until leave is called: keys come as they
// are pressed, and resized tells of another size.
func (a *app) takeScreen() (keys <-chan byte, resized <-chan os.Signal, leave func()) {
	pressed, sizes := make(chan byte, 16), make(chan os.Signal, 1)
	restore := func() {}
	if in, ok := a.env.Stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		state, err := term.MakeRaw(int(in.Fd()))
		if err == nil {
			restore = func() { _ = term.Restore(int(in.Fd()), state) } // There is no other way to end.
			go readKeys(in, pressed)                                   // Ends with the process: a terminal cannot be unread.
		}
	}
	a.out.printf("%s", enterScreen)
	signal.Notify(sizes, unix.SIGWINCH)
	return pressed, sizes, func() {
		signal.Stop(sizes)
		a.out.printf("%s", leaveScreen)
		_ = a.out.flush() // The terminal may be gone, which is why it ends.
		restore()
	}
}

func readKeys(in *os.File, keys chan<- byte) {
	var b [1]byte
	for {
		if n, err := in.Read(b[:]); n == 0 || err != nil {
			return
		}
		keys <- b[0]
	}
}

func (t *top) draw(v topView, screen *topScreen) error {
	screen.width, screen.height = 80, 24
	if f, ok := t.env.Stdout.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			screen.width, screen.height = w, h
		}
	}
	v = v.clone()
	v.arrange(screen.sort, screen.filter)
	t.out.printf("%s", homeCursor)
	for i, line := range renderTop(v, *screen) {
		if i > 0 {
			t.out.printf("\r\n")
		}
		t.out.printf("%s%s", line, clearRight)
	}
	t.out.printf("%s", clearBelow)
	return t.out.flush()
}
