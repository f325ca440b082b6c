package api

import (
	"context"
	"testing"

	"github.com/strandline/strandline/internal/config"
)

// nobody is a way to brokers that are not there.
type nobody struct{ Peers }

// Decoded requests of clients and of brokers take no more together than is configured,
// and when the ones have taken all of theirs the others go on.
func TestMemoryIsDivided(t *testing.T) {
	settings := config.Default()
	settings.QueuedMaxRequestBytes = 8 << 20
	for name, peers := range map[string]Peers{"cluster": nobody{}, "alone": nil} {
		s := &Services{Peers: peers, Broker: func() *config.Broker { return settings }}
		s.Table()
		table := s.NewClusterTable(nil)
		if table.memory != s.others {
			t.Errorf("%s: the cluster's table has a budget of its own", name)
		}
		if sum := s.memory.part + s.others.part; peers != nil && sum != settings.QueuedMaxRequestBytes {
			t.Errorf("%s: %d bytes in all", name, sum)
		}
		if s.memory.most() != s.others.most() || s.memory.most().bytes != settings.QueuedMaxRequestBytes {
			t.Errorf("%s: the largest requests are %+v and %+v", name, s.memory.most(), s.others.most())
		}
		give, err := s.memory.take(t.Context(), s.memory.part)
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.memory.take(ended, freeBytes+1); err == nil {
			t.Errorf("%s: there is more memory for clients", name)
		}
		giveOther, err := s.others.take(t.Context(), s.others.part)
		if err != nil {
			t.Errorf("%s: brokers wait for clients: %v", name, err)
			continue
		}
		giveOther()
		give()
	}
}
