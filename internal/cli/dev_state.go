package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// devEvent is something that happened.
type devEvent struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"`
	Node  int       `json:"node"` // 0 for all.
	Text  string    `json:"text"`
}

// devState is what dev knows. It is fed with looks and with ends of processes, and
// says what is new.
type devState struct {
	specs []devSpec
	began time.Time
	look  devLook
	ready bool // All nodes were there once.
	// away is since when a node does not lead what it led, by node: it is waited for
	// that others do.
	away map[int]time.Time
	// gone is since when a node does not run, by node.
	gone map[int]time.Time
	// leaders is the line about them that was said last, and controller the one.
	leaders    string
	controller int32
}

func newDevState(specs []devSpec, began time.Time) *devState {
	return &devState{specs: specs, began: began, away: map[int]time.Time{}, gone: map[int]time.Time{}, controller: -1}
}

// seen takes a look, and returns what is new.
func (s *devState) seen(l devLook) (events []devEvent) {
	if !l.known {
		s.look.at, s.look.answers, s.look.controller = l.at, l.answers, -1
		return nil
	}
	s.look = l
	if !s.ready && len(l.brokers) == len(s.specs) {
		s.ready = true
		events = append(events, devEvent{l.at, "ready", 0, fmt.Sprintf("%s up in %s: --brokers %s",
			plural(len(s.specs), "node"), roundDuration(l.at.Sub(s.began)), strings.Join(addressesOf(s.specs), ","))})
	}
	if s.ready && l.controller >= 0 && s.controller != l.controller {
		s.controller = l.controller
		events = append(events, devEvent{l.at, "controller", int(l.controller), "is the active controller"})
	}
	events = append(events, s.returned(l)...)
	after := ""
	for _, spec := range s.specs {
		since, waiting := s.away[spec.id]
		if waiting && l.asked.After(since) && l.leads(int32(spec.id)) == 0 && l.leads(-1) == 0 {
			delete(s.away, spec.id)
			after = fmt.Sprintf("  (all led by others %s after node %d was lost)", roundDuration(l.at.Sub(since)), spec.id)
		}
	}
	if line := leadersLine(l); line != s.leaders && s.ready {
		s.leaders = line
		events = append(events, devEvent{l.at, "leaders", 0, line + after})
	} else if after != "" {
		events = append(events, devEvent{l.at, "leaders", 0, "unchanged" + after})
	}
	return events
}

// returned says which nodes serve again that had ended.
func (s *devState) returned(l devLook) (events []devEvent) {
	for i, spec := range s.specs {
		since, gone := s.gone[spec.id]
		if gone && l.asked.After(since) && l.answers[i] && slices.Contains(l.brokers, int32(spec.id)) {
			delete(s.gone, spec.id)
			delete(s.away, spec.id)
			events = append(events, devEvent{l.at, "back", spec.id, "serves again"})
		}
	}
	return events
}

// ended notes that a node does not run any more.
func (s *devState) ended(id int, now time.Time) {
	s.gone[id] = now
	s.lost(id, now)
}

// lost notes that a node leads nothing from now on, if it led anything.
func (s *devState) lost(id int, now time.Time) {
	if s.look.leads(int32(id)) > 0 {
		s.away[id] = now
	}
}

// leads counts the partitions that a node leads; -1 stands for nobody.
func (l *devLook) leads(id int32) (n int) {
	for _, t := range l.topics {
		for _, p := range t.parts {
			if p.leader == id {
				n++
			}
		}
	}
	return n
}

// leadersLine is who leads, topic by topic.
func leadersLine(l devLook) string {
	var parts []string
	for _, t := range l.topics {
		if !strings.HasPrefix(t.name, "__") {
			parts = append(parts, visible(t.name)+" "+leadersOf(t, func(p devPart) string { return leaderText(p) }))
		}
	}
	if len(parts) == 0 {
		return "no topics yet"
	}
	return strings.Join(parts, "; ")
}

// leadersOf shows the leader of each partition.
func leadersOf(t devTopic, show func(devPart) string) string {
	texts := make([]string, len(t.parts))
	for i, p := range t.parts {
		texts[i] = show(p)
	}
	return strings.Join(texts, " ")
}

func leaderText(p devPart) string {
	if p.leader < 0 {
		return "-"
	}
	return fmt.Sprint(p.leader)
}

func addressesOf(specs []devSpec) []string {
	out := make([]string, len(specs))
	for i, s := range specs {
		out[i] = s.address
	}
	return out
}
