// Package controlplane is the shell around controller: it owns the state, takes
// decisions through the quorum, and publishes the metadata image that results.
//
//	caller -> CreateTopics -> quorum.Do --- loop ---> State.CreateTopics (decide)
//	                             ^                      | records
//	                             |                      v
//	caller <- answer <- applied -+---- Apply <---- replicated log
//	                                     |
//	                                     +-> Image(), OnImage
//
// It is the quorum's machine: Apply, Snapshot, Restore, Stage and Unstage are
// called by the quorum's loop, and everything that decides runs there too, so the
// state needs no lock. Everything else may be called from any goroutine.
//
// Invariants: the image that is published holds what is committed and nothing
// else; what a decision sees also holds what was decided before it; a method that
// changes something returns after this node's image and those who watch it have
// the change.
//
// Deliberately absent: the way to another node that is the active controller.
package controlplane
