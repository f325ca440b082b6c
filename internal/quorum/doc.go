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
// callers of Do go. Saving before sending is what Raft's safety stands on.
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
// Do, Receive, ReportUnreachable, ReportSnapshot, Ready and Status may be called
// from any goroutine, but not from inside the Machine or a decide function: those
// run on the loop, and would wait for themselves.
//
// A node without peers never ticks: an idle loop sleeps until somebody calls.
//
// Deliberately absent: a transport. A lone voter needs none; Transport and
// Receive are where one plugs in.
package quorum
