package producerstate

// The lists an entry can be in.
const (
	listRecent = iota
	listOpen
	numLists
)

// links are an entry's neighbours in one list.
type links struct {
	prev, next *entry
}

// list is a queue of entries linked through themselves, so that moving one
// costs no memory and no search.
type list struct {
	kind        int
	first, last *entry
}

func (l *list) push(e *entry) {
	e.links[l.kind] = links{prev: l.last}
	if l.last == nil {
		l.first = e
	} else {
		l.last.links[l.kind].next = e
	}
	l.last = e
}

func (l *list) remove(e *entry) {
	at := e.links[l.kind]
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[l.kind].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[l.kind].prev = at.prev
	}
	e.links[l.kind] = links{}
}
