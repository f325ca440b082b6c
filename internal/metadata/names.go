package metadata

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names of the topics that brokers make for themselves.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

// IsInternal says whether a topic is one that brokers make for themselves.
func IsInternal(topic string) bool {
	return topic == OffsetsTopic || topic == TransactionsTopic
}

// maxTopicName is Kafka's limit, which leaves room for "-partition" in a file
// name of 255 bytes.
const maxTopicName = 249

// CheckTopicName returns why a name cannot be a topic's, by Kafka's rule, or nil.
func CheckTopicName(name string) error {
	const rule = "letters, digits, '.', '_' and '-', at most 249 of them"
	switch {
	case name == "":
		return fmt.Errorf("a topic name may not be empty: use %s", rule)
	case name == "." || name == "..":
		return fmt.Errorf("a topic may not be called %q: use %s", name, rule)
	case len(name) > maxTopicName:
		return fmt.Errorf("the topic name has %d characters: use at most %d", len(name), maxTopicName)
	}
	for i := range len(name) {
		if nameByte(name[i]) {
			continue
		}
		shown := fmt.Sprintf("'\\x%02x'", name[i])
		if c, _ := utf8.DecodeRuneInString(name[i:]); c != utf8.RuneError {
			shown = strconv.QuoteRune(c)
		}
		return fmt.Errorf("the topic name %q has the character %s: use %s", name, shown, rule)
	}
	return nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}

// CollisionKey is equal for two names that Kafka holds for the same in metric
// names, where '.' is written '_': there may be just one topic for each key.
func CollisionKey(topic string) string { return strings.ReplaceAll(topic, ".", "_") }
