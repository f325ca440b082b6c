package partition

// Mend does what can be done now.
func (m *Mender) Mend() {
	m.init()
	m.mendAll()
}
