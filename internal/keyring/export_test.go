package keyring

// Len returns how many rings there are.
func (r *Rings) Len() (n int) {
	r.rings.Range(func(any, any) bool { n++; return true })
	return n
}
