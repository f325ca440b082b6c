package partition

import "context"

// Mend does what can be done now.
func (m *Mender) Mend() {
	m.init()
	m.mendAll(context.Background())
}

// Misfit has the replica need another log, as if what others have did not fit.
func (p *Partition) Misfit() {
	p.aside.damaged.Store(true)
	p.aside.troubled(p)
}
