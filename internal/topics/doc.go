// Package topics is what all requests that name a topic have in common, whether
// they come in Kafka's protocol or over HTTP: how a name or an id is resolved,
// what the topic's configuration lets a producer send, which topics are created
// because somebody asked for them, and how a refusal is worded.
//
// It may be called from any goroutine. Invariant: a View is what the metadata
// image and the broker's settings said at one moment; whoever keeps one longer
// than a request works with the past. Deliberately absent: what is done with a
// topic.
package topics
