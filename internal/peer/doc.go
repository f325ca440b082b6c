// Package peer is how brokers of a cluster talk to one another: connections to the
// other brokers' cluster listeners, over which requests of the Kafka protocol go,
// and the messages of Raft as one private request among them.
//
//	Conn   one connection to one broker: dials when it is needed, pipelines
//	Pool   a Conn per broker, for one purpose
//	Raft   quorum.Transport: a queue and a Conn per node, and the receiving side
//
// Answers of a connection come in the order of its requests, so what may wait long
// (a fetch) and what must not (a heartbeat) belong on connections of their own.
//
// It assumes that whoever listens speaks ApiVersions, and that the network may
// lose, delay and cut, but not alter. A broken connection fails all requests on
// it with *DownError, and none is sent twice: only the caller knows whether a
// request that may have been handled can be sent again.
//
// All methods are safe from any goroutine. A Conn's own goroutines end with Close,
// those of Raft with Run.
//
// Deliberately absent: retries, and any judgement on who is dead. A refused dial
// and a closed connection are reported as what they are.
package peer
