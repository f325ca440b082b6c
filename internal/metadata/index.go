package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// topicIndex finds topics by name and by id, and lists them in the order of their
// names. It is persistent: with returns a changed copy that shares all but the
// touched parts. Three structures of two levels each do that with a few lines,
// where a tree of any kind would need hundreds:
//
//	names   256 small maps, by a hash of the name
//	ids     256 small maps, by a byte of the id (ids are random)
//	sorted  chunks of up to maxChunk topics
//
// With 10,000 topics a change copies two maps of some 40 entries, a chunk of at
// most 4 KiB and the upper levels, some 10 KiB in all.
type topicIndex struct {
	names  *[shards]map[string]*Topic
	ids    *[shards]map[kafka.TopicID]*Topic
	sorted [][]*Topic // No chunk is empty.
	len    int
}

const (
	shards   = 256
	maxChunk = 512
)

func (x *topicIndex) byName(name string) *Topic {
	if x.names == nil {
		return nil
	}
	return x.names[nameShard(name)][name]
}

func (x *topicIndex) byID(id kafka.TopicID) *Topic {
	if x.ids == nil {
		return nil
	}
	return x.ids[idShard(id)][id]
}

func (x *topicIndex) all() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, chunk := range x.sorted {
			for _, t := range chunk {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// nameShard is FNV-1a, folded.
func nameShard(name string) byte {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return byte(h>>24) ^ byte(h>>16) ^ byte(h>>8) ^ byte(h)
}

func idShard(id kafka.TopicID) byte { return id[len(id)-1] }

// topicEditor changes an index. What it copied already it changes in place, so
// that a batch copies nothing twice.
type topicEditor struct {
	topicIndex
	ownNames, ownIDs [shards]bool // Maps.
	owned            bool         // The upper levels.
}

func (x *topicIndex) edit() *topicEditor {
	return &topicEditor{topicIndex: *x}
}

// own copies the upper levels before the first change.
func (e *topicEditor) own() {
	if e.owned {
		return
	}
	e.owned = true
	names, ids := new([shards]map[string]*Topic), new([shards]map[kafka.TopicID]*Topic)
	if e.names != nil {
		*names, *ids = *e.names, *e.ids
	}
	e.names, e.ids, e.sorted = names, ids, slices.Clone(e.sorted)
}

// put adds a topic or replaces the one of the same name and id.
func (e *topicEditor) put(t *Topic) {
	e.own()
	names := e.nameMap(t.Name)
	_, known := names[t.Name]
	names[t.Name] = t
	e.idMap(t.ID)[t.ID] = t
	chunk, i := e.find(t.Name)
	switch {
	case known:
		e.ownChunk(chunk)[i] = t
	case len(e.sorted) == 0:
		e.sorted = append(e.sorted, []*Topic{t})
	default:
		e.sorted[chunk] = slices.Insert(e.ownChunk(chunk), i, t)
		e.split(chunk)
	}
	if !known {
		e.len++
	}
}

// remove removes a topic that is there.
func (e *topicEditor) remove(t *Topic) {
	e.own()
	delete(e.nameMap(t.Name), t.Name)
	delete(e.idMap(t.ID), t.ID)
	chunk, i := e.find(t.Name)
	e.sorted[chunk] = slices.Delete(e.ownChunk(chunk), i, i+1)
	if len(e.sorted[chunk]) == 0 {
		e.sorted = slices.Delete(e.sorted, chunk, chunk+1)
	}
	e.len--
}

func (e *topicEditor) nameMap(name string) map[string]*Topic {
	s := nameShard(name)
	if !e.ownNames[s] {
		e.ownNames[s] = true
		e.names[s] = cloneMap(e.names[s])
	}
	return e.names[s]
}

func (e *topicEditor) idMap(id kafka.TopicID) map[kafka.TopicID]*Topic {
	s := idShard(id)
	if !e.ownIDs[s] {
		e.ownIDs[s] = true
		e.ids[s] = cloneMap(e.ids[s])
	}
	return e.ids[s]
}

// cloneMap is maps.Clone, but never nil.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m)+1)
	for k, v := range m {
		out[k] = v
	}
	return out
}

// ownChunk returns a chunk that may be changed in place.
func (e *topicEditor) ownChunk(chunk int) []*Topic {
	// A chunk of a batch's own has room to spare, a shared one never has: see
	// finish.
	if c := e.sorted[chunk]; cap(c) == len(c) {
		e.sorted[chunk] = append(make([]*Topic, 0, len(c)+maxChunk/8), c...)
	}
	return e.sorted[chunk]
}

// finish returns the index. The editor must not be used after.
func (e *topicEditor) finish() topicIndex {
	if e.owned {
		for i, c := range e.sorted {
			e.sorted[i] = slices.Clip(c)
		}
	}
	return e.topicIndex
}

// find returns where a name is or belongs.
func (e *topicEditor) find(name string) (chunk, i int) {
	chunk, _ = slices.BinarySearchFunc(e.sorted, name, func(c []*Topic, name string) int {
		return cmp.Compare(c[len(c)-1].Name, name)
	})
	if chunk == len(e.sorted) {
		if chunk == 0 {
			return 0, 0
		}
		chunk--
	}
	i, _ = slices.BinarySearchFunc(e.sorted[chunk], name, func(t *Topic, name string) int {
		return cmp.Compare(t.Name, name)
	})
	return chunk, i
}

// split halves a chunk that has grown too large.
func (e *topicEditor) split(chunk int) {
	c := e.sorted[chunk]
	if len(c) <= maxChunk {
		return
	}
	lower := append(make([]*Topic, 0, maxChunk), c[:len(c)/2]...)
	upper := append(make([]*Topic, 0, maxChunk), c[len(c)/2:]...)
	e.sorted[chunk] = lower
	e.sorted = slices.Insert(e.sorted, chunk+1, upper)
}
