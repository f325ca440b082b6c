package wire

import "time"

// alarm is the only timer of a connection. It is set for the deadline of the
// answer at the head of the queue, and rather rings too early than be set
// often: whoever hears it sets it again. So a connection with steady traffic
// sets it once per deadline, not once per request.
type alarm struct {
	timer *time.Timer // Nil before its first use.
	at    time.Time   // When it rings, or rang.
}

// set makes the alarm call ring when left is over at the latest. Only one ring
// function may be used with an alarm.
func (a *alarm) set(now time.Time, left time.Duration, ring func()) {
	at := now.Add(left)
	switch {
	case a.timer == nil:
		a.timer = time.AfterFunc(left, ring)
	case a.at.After(now) && !a.at.After(at):
		return
	default:
		a.timer.Reset(left)
	}
	a.at = at
}

// stop keeps the alarm from ringing; a ring that began goes on.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
