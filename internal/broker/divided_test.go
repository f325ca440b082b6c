package broker

import (
	"testing"

	"github.com/strandline/strandline/internal/config"
)

// What is configured bounds the memory of all listeners together: where there are other
// brokers they have a part of it for themselves.
func TestListenersDivideTheMemory(t *testing.T) {
	b := config.Default()
	clients, brokers := divided(b, true)
	if sum := clients.MaxQueuedBytes + brokers.MaxQueuedBytes; sum != b.QueuedMaxRequestBytes {
		t.Errorf("requests may take %d bytes, configured are %d", sum, b.QueuedMaxRequestBytes)
	}
	if sum := clients.MaxAnswerBytes + brokers.MaxAnswerBytes; sum != b.QueuedMaxResponseBytes {
		t.Errorf("answers may take %d bytes, configured are %d", sum, b.QueuedMaxResponseBytes)
	}
	if brokers.MaxQueuedBytes <= 0 || brokers.MaxAnswerBytes <= 0 || brokers.MaxRequestBytes < clusterRequestBytes {
		t.Errorf("the other brokers have %+v", brokers)
	}
	if alone, _ := divided(b, false); alone.MaxQueuedBytes != b.QueuedMaxRequestBytes || alone.MaxAnswerBytes != b.QueuedMaxResponseBytes {
		t.Errorf("alone: %+v", alone)
	}
}
