// Package controller decides about the cluster's metadata: it takes a request and
// returns the answer and the records that make it come true.
//
// It is a pure machine. Methods that decide read the state and return records;
// only Replay changes the state, and it does so alike for what was just decided,
// for what comes back at a restart and for what another node decided. Nothing
// here reads a clock, draws a random number or blocks: ids of topics are drawn by
// a function that the owner passes in.
//
// Who may call: one goroutine at a time, the loop of the quorum. The functions
// that only describe take an image and may run anywhere.
//
// Invariant: the records that a method returns apply to the image of the state
// that returned them.
//
// Requests and answers are the protocol's own messages, codes are Kafka's, and
// every refusal says what was asked, what the limit is and what to do.
//
// Which brokers run is not metadata, and no record tells it: Liveness holds it on
// the active controller alone. What follows from it is: FenceBrokers, and all other
// elections, which settle in failover.go decides.
//
// Deliberately absent: timers, and any word to a broker.
package controller
