package commitlog

import "time"

// Hanging returns for how long the disk has not made durable what was asked of it; zero if
// it owes nothing.
func (d *Dir) Hanging() time.Duration {
	j, ok := d.journal.(interface{ Committing() time.Duration })
	if !ok {
		return 0
	}
	return j.Committing()
}
