package config

import "strings"

// whyUnknown says what to do about an option that is not in the table.
func whyUnknown(scope Scope, name string) string {
	if reason, ok := notHere[name]; ok {
		return reason
	}
	for prefix, reason := range notHerePrefixes {
		if strings.HasPrefix(name, prefix) {
			return reason
		}
	}
	other := TopicScope
	if scope == TopicScope {
		other = BrokerScope
	}
	if o, ok := Lookup(other, name); ok {
		return "it is an option of a " + o.Scope.String()
	}
	if near := nearest(scope, name); near != "" {
		return "did you mean " + near + "?"
	}
	return "see docs/configuration.md for those there are"
}

const (
	noPools   = "there are no thread pools to size here; leave it out"
	removed   = "Kafka 4 removed it, and so it is not here; leave it out"
	voters    = "name the voters with --voters, and this node with --node-id"
	noSecrets = "passwords and authorization are not available in this version; for certificates " +
		"of clients see --tls-ca"
	byTLSFlags = "TLS is set by flags: --tls-cert and --tls-key, and --tls-ca to let in only clients with a certificate: " +
		"see docs/operations/tls.md"
	byClusterTLS = "TLS is set by flags: --cluster-tls-cert, --cluster-tls-key and --cluster-tls-ca: see docs/operations/tls.md"
	noTxn        = "transactions are not available in this version"
)

// notHere are options of Kafka's that people bring along, and why they are
// refused. It is constant.
var notHere = map[string]string{
	"background.threads":                  noPools,
	"num.io.threads":                      noPools,
	"num.network.threads":                 noPools,
	"queued.max.requests":                 "requests are bounded by bytes: set queued.max.request.bytes",
	"broker.id":                           "set node.id",
	"log.dir":                             "set log.dirs",
	"process.roles":                       "a node is broker and controller in one; leave it out",
	"controller.quorum.voters":            voters,
	"controller.quorum.bootstrap.servers": voters,
	"controller.listener.names":           "set --cluster-listen",
	"inter.broker.listener.name":          "set --cluster-listen",
	"listener.security.protocol.map":      byTLSFlags,
	"security.inter.broker.protocol":      byClusterTLS,
	"authorizer.class.name":               noSecrets,
	"super.users":                         noSecrets,
	"zookeeper.connect":                   "there is no ZooKeeper; leave it out",
	"message.format.version":              removed,
	"log.message.format.version":          removed,
	"inter.broker.protocol.version":       removed,
	"message.downconversion.enable":       removed,
	"log.message.downconversion.enable":   removed,
	"message.timestamp.difference.max.ms": "set message.timestamp.before.max.ms and " +
		"message.timestamp.after.max.ms",
	"transactional.id.expiration.ms":   noTxn,
	"transaction.max.timeout.ms":       noTxn,
	"remote.log.storage.system.enable": "segments are not moved to object storage by this version",
	"metric.reporters":                 "metrics are served over HTTP; leave it out",
	"log.flush.start.offset.checkpoint.interval.ms": "set " +
		"log.flush.offset.checkpoint.interval.ms, which covers both",
	"replica.high.watermark.checkpoint.interval.ms": "set " +
		"log.flush.offset.checkpoint.interval.ms, which covers both",
	"log.cleaner.io.buffer.size": "the cleaner's buffers are sized by its work; leave it out",
}

// notHerePrefixes are whole families of such options. It is constant.
var notHerePrefixes = map[string]string{
	"ssl.":                   byTLSFlags,
	"sasl.":                  noSecrets,
	"listener.name.":         noSecrets,
	"transaction.state.log.": noTxn,
	"group.consumer.":        "the consumer group protocol of KIP-848 is not available in this version",
	"group.share.":           "share groups are not available",
	"group.streams.":         "streams groups are not available",
}

// nearest returns the option whose name differs least, if it differs little.
func nearest(scope Scope, name string) string {
	const longest = 64 // Longer than any option: such a name is no slip of the pen.
	if len(name) > longest {
		return ""
	}
	best, least := "", 4
	for o := range Options(scope) {
		if d := distance(name, o.Name); d < least {
			best, least = o.Name, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
