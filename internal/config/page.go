package config

import (
	"fmt"
	"strings"
)

// Page returns docs/configuration.md: every option there is.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("\n## Options of a broker\n\n" + brokerHead)
	for o := range Options(BrokerScope) {
		if o.Of == "" {
			writeOption(&b, o)
		}
	}
	b.WriteString("\n## Options of a topic\n\n" + topicHead)
	for o := range Options(TopicScope) {
		writeOption(&b, o)
	}
	b.WriteString(pageKafka)
	return b.String()
}

const pageHead = `# Configuration

<!-- Made from internal/config by a test: go test ./internal/archtest -rewrite -->

Names are Apache Kafka's wherever Kafka has one, and so are types, ranges and
defaults, unless the text of an option says otherwise.

A broker's options are given when it starts: ` + "`--set name=value`" + `, or a
` + "`--config FILE`" + ` of YAML. Those marked *cluster-wide* or *per-broker* can also be changed
while it runs, with any Kafka tool:

    kafka-configs.sh --bootstrap-server localhost:9092 --alter \
      --entity-type brokers --entity-default --add-config fetch.max.bytes=10485760

What was set for one broker wins over what was set for all, and that over what it was
started with.

A topic's options are given when it is created and can be changed at any time:

    strandline topic create orders --config retention.ms=86400000
    strandline topic alter orders --config retention.ms=-1

An option that is not here is refused, never ignored. One that is **kept** is checked,
stored and shown, but has no effect in this version; its text says why.
`

const brokerHead = `Beside these, every option of a topic has one of the broker's that gives its default; it
stands with the topic's.
`

const topicHead = `The broker's option that gives the default stands in brackets; where there are several, the
first that is set wins.
`

const pageKafka = `
## Where the defaults differ from Kafka's

| option | here | Kafka | why |
| --- | --- | --- | --- |
| flush.messages | 1 | never | An acknowledged record is on disk. |
| max.decompressed.message.bytes | 256 MiB a batch | 2 GiB a record | A small request must not cost seconds of work. |
| log.flush.offset.checkpoint.interval.ms | 5000 | 60000 | What is below the checkpoint is known to be corrupt when it is damaged, and is never cut off as a torn tail. |
| group.initial.rebalance.delay.ms | 0 | 3000 | A consumer that starts alone does not wait for company. |
| queued.max.request.bytes | 100 MiB | no limit | Memory stays bounded whatever arrives. |
| max.connections | 10000 | no limit | The same. |
| max.connections.per.ip | 2000 | no limit | The same. |
| socket.send.buffer.bytes, socket.receive.buffer.bytes | the system's | 102400 | Buffers grow with the link. |
| broker.heartbeat.interval.ms | 250 | 2000 | A broker that hangs is replaced soon. |
| broker.session.timeout.ms | 1500 | 9000 | The same. |
| leader.imbalance.check.interval.seconds | 10 | 300 | Leaders come back by themselves, some at a time. |
| replica.fetch.backoff.ms | 100 | 1000 | A follower follows a new leader soon. |
| node.id | 1 | none | A broker that is alone needs no number. |
| listeners | 127.0.0.1:9092 | every interface | Nothing is open to the network unless asked for. |
| log.dirs | ./strandline-data | /tmp/kafka-logs | Nothing vanishes with a reboot. |
`

func writeOption(b *strings.Builder, o *Option) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", o.Name, o.Doc)
	facts := []string{o.Type.String()}
	switch {
	case o.NoDefault:
		facts = append(facts, "no default")
	case o.Default == "":
		facts = append(facts, "default empty")
	default:
		facts = append(facts, "default `"+o.Default+"`")
	}
	if valid := o.Check.String(); valid != "" {
		facts = append(facts, "valid: "+valid)
	}
	if o.Scope == BrokerScope {
		facts = append(facts, o.Update.String())
	}
	if o.Stored {
		facts = append(facts, "**kept**")
	}
	b.WriteString(strings.Join(facts, "; "))
	if len(o.Synonyms) > 0 {
		var names []string
		for _, s := range o.Synonyms {
			row, _ := Lookup(BrokerScope, s.Name)
			names = append(names, fmt.Sprintf("%s, %s", s.Name, row.Update))
		}
		fmt.Fprintf(b, " (%s)", strings.Join(names, "; "))
	}
	b.WriteString("\n")
}
