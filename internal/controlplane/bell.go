package controlplane

import "sync"

// bell wakes everybody who waits for something to happen.
type bell struct {
	mu   sync.Mutex
	next chan struct{} // Nil while nobody waits.
}

// wait returns a channel that is closed the next time the bell rings. Whoever
// waits for a condition asks for the channel before it looks.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
