package topics

// Kept returns how many views are kept.
func (d *Directory) Kept() (n int) {
	d.views.Range(func(any, any) bool { n++; return true })
	return n
}
