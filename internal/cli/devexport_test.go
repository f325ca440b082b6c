package cli

import "time"

// DevScreen draws a cluster of three, of which one is down and one is frozen.
func DevScreen() []string {
	specs := []devSpec{{id: 1, address: "a:1"}, {id: 2, address: "b:2"}, {id: 3, address: "c:3", http: "h:3"}}
	noon := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)
	s := newDevState(specs, noon)
	s.ready = true
	topic := devTopic{name: "events"}
	for _, leader := range []int32{1, 3, 1, 3, 1, -1} {
		topic.parts = append(topic.parts, devPart{leader: leader, isr: 2 + int(leader)%2, replicas: 3})
	}
	s.look = devLook{
		at: noon, answers: []bool{true, false, false}, known: true, brokers: []int32{1, 3}, controller: 1,
		topics: []devTopic{topic},
	}
	return renderDev(&devScreen{
		width: 100, height: 14, state: s, mode: devKill,
		nodes: []devRow{{specs[0], 11, false}, {specs[1], 0, false}, {specs[2], 33, true}},
		events: []devEvent{
			{noon, "kill", 2, "is killed (kill -9)"},
			{noon.Add(200 * time.Millisecond), "leaders", 0, "events 1 3 1 3 1 -"},
		},
	})
}
