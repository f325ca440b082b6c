// Package quorum replicates a state machine by Raft: it drives the library
// go.etcd.io/raft/v3 with one loop, keeps the Raft log on vfs, and gives one
// entrance to whoever wants to change the machine, Do.
//
// The machine is the cluster's metadata, but nothing here knows that: quorum is
// generic over Machine and never imports the controller.
//
//	Do(decide) --> waiting --+
//	                         |   one goroutine, the loop
//	Receive(message) --------+-> wait -> save -> send -> apply -> compact -+
//	                         |    ^                                       |
//	ticks (with peers only) -+    +---------------------------------------+
//
// Each round waits for input, saves what Raft wants on disk with one write and
// one sync, only then sends messages, applies what is committed and lets the
// callers of Do go. Saving a promise before sending it is what Raft's safety
// stands on; what promises nothing, as a leader's messages, leaves before the sync.
//
// Leaders change by timeouts (a leader that hangs or is cut off), at once when the
// leader's process is reported dead (elect.go), and by Resign. Who takes part
// changes by entries of the log (change.go): nodes that greet the leader become
// learners, and a learner becomes a voter by AddVoter. A member is a node id and the
// id of a data directory: with another directory it is another member, because it
// lacks what that one promised to hold.
//
// It assumes that it alone touches its directory (the data directory's lock
// belongs to commitlog), and what vfs says about durability.
//
// Invariants:
//
//	snapshot index <= applied <= committed <= last index
//	log's base index <= snapshot index
//
// A failed sync is final: Run returns the error, every waiting Do gets it, and
// the directory must be opened anew. So is an error of the machine's Apply.
//
// All methods may be called from any goroutine, but those that take a context not
// from inside the Machine, a decide function or OnLeader: those run on the loop, and
// would wait for themselves.
//
// A node without peers never ticks: an idle loop sleeps until somebody calls.
//
// Deliberately absent: a transport. A lone voter needs none; package peer has one
// for the others.
package quorum
