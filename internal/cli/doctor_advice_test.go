package cli_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/strandlinetest"
)

// advised is the command that an advice ends with, or consists of.
var advised = regexp.MustCompile(`strandline (.*)$`)

// What the doctor advises about topics can be typed as it stands, with the topic's name for
// TOPIC, and then nothing is wrong any more.
func TestAdviceWorksWordByWord(t *testing.T) {
	c := commands{t, strandlinetest.StartCluster(t, 3).Addrs()}
	for topic, flags := range map[string][]string{
		"lonely":  {"-r", "1", "-c", "min.insync.replicas=1"},
		"tight":   {"-r", "3", "-c", "min.insync.replicas=3"},
		"pair":    {"-r", "2", "-c", "min.insync.replicas=2"},
		"deaf":    {"-r", "1", "-c", "min.insync.replicas=2"},
		"unclean": {"-r", "3", "-c", "unclean.leader.election.enable=true"},
	} {
		c.run(0, append([]string{"topic", "create", topic}, flags...)...)
	}
	type finding struct{ Status, Check, Message, Advice string }
	troubles := func() []finding {
		var found []finding
		out, _, _ := c.try("cluster", "doctor", "--watch", "0", "--json")
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return slices.DeleteFunc(found, func(f finding) bool { return f.Status == "ok" || f.Check != "topics" })
	}
	followed := 0
	for _, f := range troubles() {
		command := advised.FindStringSubmatch(f.Advice)
		if command == nil {
			t.Fatalf("%q: no command in %q", f.Message, f.Advice)
		}
		_, names, _ := strings.Cut(f.Message, ": ")
		for name := range strings.SplitSeq(names, ", ") {
			args := strings.Fields(strings.ReplaceAll(command[1], "TOPIC", name))
			if args[0] == "cluster" {
				args = append(args, "--yes")
			}
			c.run(0, args...)
			followed++
		}
	}
	if followed < 5 {
		t.Errorf("%d topics were found to be in trouble", followed)
	}
	// The broker that is asked may hear a moment later of what was decided.
	left := troubles()
	for end := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(end); {
		left = troubles()
	}
	for _, f := range left {
		t.Errorf("after its advice was followed: %+v", f)
	}
}
