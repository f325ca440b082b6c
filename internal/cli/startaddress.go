package cli

import (
	"errors"
	"net"

	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/config"
)

// addresses returns where a broker would listen and what it would tell clients,
// "" for the former, whether a flag says so or a setting.
func (s *startFlags) addresses(b *config.Broker) (listen, advertise string) {
	listen, advertise = s.broker.Listen, s.broker.Advertise
	if _, ok := s.broker.Settings["listeners"]; ok {
		listen = hostPort(b.Listeners[0].Host, b.Listeners[0].Port)
	}
	if len(b.AdvertisedListeners) > 0 {
		l := b.AdvertisedListeners[0]
		advertise = hostPort(l.Host, l.Port)
	}
	return listen, advertise
}

// checkAddresses refuses addresses with which no client could work.
func (s *startFlags) checkAddresses(b *config.Broker) error {
	const example = "To serve other machines: --listen 0.0.0.0:9092 --advertise NAME"
	listen, advertise := s.addresses(b)
	if listen == "" {
		return usagef("--listen is empty").hint("Give HOST:PORT, such as 127.0.0.1:9092. %s", example)
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return usagef("--listen %s: want HOST:PORT", listen).hint("%s", example)
	}
	if advertise == "" {
		if isEverywhere(host) {
			return usagef("--listen %s is every address of this machine, which does not say where clients "+
				"are to connect to", listen).hint("Say which one they use: --advertise HOST[:PORT]")
		}
		return nil
	}
	if told, _, err := net.SplitHostPort(advertise); err == nil {
		advertise = told
	}
	if isEverywhere(advertise) {
		return usagef("--advertise %s is every address of a machine: no client can connect to that", s.toldAs(b)).
			hint("Say which one clients use: --advertise HOST[:PORT]")
	}
	return nil
}

// toldAs is the address that clients would be told, as it was given.
func (s *startFlags) toldAs(b *config.Broker) string {
	_, advertise := s.addresses(b)
	return advertise
}

// isEverywhere reports whether a host stands for all addresses of a machine.
func isEverywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// onceValue is a flag that may be given once: of two, somebody would expect the
// other.
type onceValue struct {
	pflag.Value
	given bool
}

// Set implements pflag.Value.
func (v *onceValue) Set(text string) error {
	if v.given {
		return errors.New("it was given twice")
	}
	v.given = true
	return v.Value.Set(text)
}

// refuseTwice makes the flags of a set that take one value refuse a second.
func refuseTwice(f *pflag.FlagSet) {
	f.VisitAll(func(flag *pflag.Flag) {
		if _, many := flag.Value.(pflag.SliceValue); !many {
			flag.Value = &onceValue{Value: flag.Value}
		}
	})
}
