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
// With several brokers, the node that leads the quorum is the active controller. A
// caller on any other node goes the same way by Remote and Serve, and Lifecycle is
// how a broker becomes and stays part of it:
//
//	caller -> CreateTopics -> Remote ----> Serve -> quorum.Do (as above)
//	Lifecycle -- Join, heartbeats, Leave -> Serve -> Liveness, quorum.Do
//	LeaderChanged, ReportDown -> Run: fences who is silent, balances leaders
//
// Invariants: the image that is published holds what is committed and nothing
// else; what a decision sees also holds what was decided before it; a method that
// changes something returns after this node's image and those who watch it have
// the change.
//
// Deliberately absent: connections to other nodes, which belong to whoever
// implements Remote; and any use of who is fenced, which is the image's to tell.
package controlplane
