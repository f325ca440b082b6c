package cli

import (
	"context"
	"fmt"
	"time"
)

// devStart is how long the nodes may take to come up.
const devStart = 30 * time.Second

// plain prints a line for whatever happens, until ctx ends.
func (d *dev) plain(ctx context.Context, s *devState, looks <-chan devLook) error {
	for _, n := range d.cluster.nodes {
		if err := d.print(d.describe(n)); err != nil {
			return err
		}
	}
	late := time.NewTimer(devStart)
	defer late.Stop()
	for {
		var events []devEvent
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			if !s.ready {
				return d.notUp()
			}
		case e := <-d.cluster.ended:
			event, err := d.tookEnd(s, e)
			if err != nil {
				return err
			}
			events = append(events, event)
		case l := <-looks:
			events = append(events, s.seen(l)...)
			events = append(events, d.restartDue()...)
		}
		if err := d.print(events...); err != nil {
			return err
		}
	}
}

// describe says where a node is.
func (d *dev) describe(n *devNode) devEvent {
	text := fmt.Sprintf("pid %d, clients %s", n.pid(), n.spec.address)
	if n.spec.http != "" {
		text += ", http://" + n.spec.http
	}
	return devEvent{d.now(), "node", n.spec.id, text + ", log " + n.spec.logs}
}

// print prints events as they are asked for.
func (d *dev) print(events ...devEvent) error {
	for _, e := range events {
		switch d.out.form {
		case formJSON:
			if err := d.out.jsonLine(e); err != nil {
				return err
			}
		case formPlain:
			t := newTable("time", "event", "node", "text")
			t.add(e.At.Format(devClock), e.Event, e.Node, e.Text)
			t.lines(d.out.stdout)
		case formTable:
			d.out.printf("%s  %s\n", d.out.paint.dim(e.At.Format(devClock)), eventText(e))
		}
	}
	return d.out.flush()
}

const devClock = "15:04:05.000"

// eventText is an event for people.
func eventText(e devEvent) string {
	switch {
	case e.Node > 0:
		return fmt.Sprintf("node %d %s", e.Node, e.Text)
	case e.Event == "leaders":
		return "leaders: " + e.Text
	}
	return e.Text
}

// tookEnd notes the end of a process. One that could not even start ends it all.
func (d *dev) tookEnd(s *devState, e devEnd) (devEvent, error) {
	now := d.now()
	d.cluster.took(e, now)
	if e.failed && !s.ready {
		return devEvent{}, failf("node %d %s: %s", e.node.spec.id, e.why, e.node.lastWords()).
			hint("Its log is %s.", e.node.spec.logs).
			hint("If an address is in use, something else runs there: choose another --port and --http-port.")
	}
	s.ended(e.node.spec.id, now)
	return devEvent{now, "ended", e.node.spec.id, e.why}, nil
}

// restartDue starts nodes again that --restart is for.
func (d *dev) restartDue() (events []devEvent) {
	if d.restart == 0 {
		return nil
	}
	for _, n := range d.cluster.nodes {
		if n.cmd == nil && !n.wished && d.now().Sub(n.endAt) >= d.restart {
			events = append(events, d.startAgain(n))
		}
	}
	return events
}

func (d *dev) startAgain(n *devNode) devEvent {
	if err := n.start(); err != nil {
		return devEvent{d.now(), "failed", n.spec.id, "does not start: " + err.Error()}
	}
	return devEvent{d.now(), "started", n.spec.id, fmt.Sprintf("starts again, pid %d", n.pid())}
}

func (d *dev) notUp() error {
	return failf("the nodes are not up after %v", devStart).hint("Their logs are in %s.", d.dataDir)
}
