// Package config is the one table of options: name, type, default, range,
// whether it can change while the broker runs, and what it does. Everything that
// shows or checks an option reads this table: flags, configuration files,
// DescribeConfigs, AlterConfigs and docs/configuration.md.
//
// An option is a topic's (retention.ms), a broker's (fetch.max.bytes), or a
// broker's that is the default of a topic's (log.retention.ms): the last are made
// from the topic's row, so that the two cannot differ. Names are Kafka's wherever
// Kafka has one.
//
// Values arrive as strings in layers (Sources) and leave as typed structs, Broker
// and Topic, which hold only valid values and are never changed after they were
// made. An option of Kafka's that nothing here acts on is either kept and says so
// in its Doc (Stored), or refused with the reason; none is taken in silence.
//
// The package is pure: it reads no file, no environment and no clock. No value is
// ever used as a class name, an address to fetch or a reference to the
// environment.
package config
