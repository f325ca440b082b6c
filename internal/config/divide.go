package config

// brokersPart is the part of a bound on memory that the other brokers have: one in so
// many.
const brokersPart = 4

// Divide divides what requests or answers may take (queued.max.request.bytes,
// queued.max.response.bytes) between the clients' listener and the one for other
// brokers, where there is one: clients in need of memory must not hold up replication,
// and the sum stays what was configured.
func Divide(bytes int64) (clients, brokers int64) {
	brokers = bytes / brokersPart
	return bytes - brokers, brokers
}
