package commitlog

import "time"

// Hanging returns for how long the disk has not made durable what was asked of it; zero if
// it owes nothing.
func (d *Dir) Hanging() time.Duration {
	if j := d.Journal(); j != nil {
		return j.Committing()
	}
	return 0
}
