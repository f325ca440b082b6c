// Package relay sends HTTP requests to other brokers, over connections that the
// caller opens: tunnels through the cluster listeners (package peer).
//
//	Relay   for each broker the connections that nobody uses now
//	conn    one connection: one request at a time, HTTP/1.1
//
// Why not http.Transport: it sends some requests again by itself, and whether that
// is safe is for the caller to know. Here every failure says whether anything of the
// request may have arrived (*Error), and nothing is ever sent twice.
//
// A request is sent with its fields, but for those that are about its connection,
// and those whose names begin with FieldPrefix, which brokers tell one another: what
// a client put there never gets through.
//
// Its methods may be called from any goroutine. Deliberately absent: retries, limits
// on how many requests are under way (who accepts the requests has them), and any
// knowledge of what they are about.
package relay
