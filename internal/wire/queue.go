package wire

// queue is a first-in first-out ring of answers that grows as needed.
type queue struct {
	ring  []pending
	begin int
	count int
}

func (q *queue) len() int { return q.count }

func (q *queue) push(p pending) {
	if q.count == len(q.ring) {
		grown := make([]pending, max(4, 2*len(q.ring)))
		n := copy(grown, q.ring[q.begin:])
		copy(grown[n:], q.ring[:q.begin])
		q.ring, q.begin = grown, 0
	}
	q.ring[(q.begin+q.count)%len(q.ring)] = p
	q.count++
}

func (q *queue) first() (pending, bool) {
	if q.count == 0 {
		return pending{}, false
	}
	return q.ring[q.begin], true
}

func (q *queue) pop() {
	q.ring[q.begin] = pending{}
	q.begin = (q.begin + 1) % len(q.ring)
	q.count--
}
